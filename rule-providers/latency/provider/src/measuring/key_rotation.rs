use std::{path::PathBuf, sync::Arc};

use anyhow::Result;
use tautline_runtime::tls::FileChanges;
use tokio_util::sync::CancellationToken;

use super::sleep::sleep;
use crate::{
    agents::keys::{EchoKeys, ROTATION_STEP},
    network::target_lists::TargetLists,
};

pub(super) async fn follow_file(
    lists: Arc<TargetLists>,
    keys: EchoKeys,
    file: PathBuf,
    stop: CancellationToken,
) -> Result<()> {
    let mut changes = FileChanges::new(vec![file.clone()]);
    while changes.next(&stop).await {
        match keys.reload(&file) {
            Ok(()) => {
                lists.keys_changed();
                if !sleep(&stop, ROTATION_STEP).await {
                    break;
                }
                keys.issue_newest();
                lists.keys_changed();
                if !sleep(&stop, ROTATION_STEP).await {
                    break;
                }
                keys.drop_previous();
                lists.keys_changed();
                tracing::info!(file = %file.display(), "echo key replaced");
            }
            Err(error) => tracing::warn!("{error}; keeping the old echo key"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::network::Network;

    #[tokio::test(start_paused = true)]
    async fn new_key_is_sent_in_three_steps_and_an_invalid_one_never() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "0123456789abcdef").unwrap();
        let keys = EchoKeys::from_file(&path).unwrap();
        let old = keys.pair_key("i", "r");
        let (lists, stop) = (Network::default().lists, CancellationToken::new());
        let follower = follow_file(lists.clone(), keys.clone(), path.clone(), stop.clone());
        let follower = tokio::spawn(follower);
        tokio::task::yield_now().await;

        std::fs::write(&path, "short").unwrap();
        tokio::time::sleep(ROTATION_STEP).await;
        assert_eq!(lists.key_epoch(), 0);

        std::fs::write(&path, "fedcba9876543210").unwrap();
        let epoch = async |wanted| {
            let deadline = tokio::time::Instant::now() + ROTATION_STEP * 6;
            while lists.key_epoch() < wanted {
                assert!(tokio::time::Instant::now() < deadline, "no new lists");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        epoch(1).await;
        assert_eq!(keys.responder_keys("r").len(), 2);
        assert_eq!(keys.pair_key("i", "r"), old);
        epoch(2).await;
        assert_ne!(keys.pair_key("i", "r"), old);
        epoch(3).await;
        assert_eq!(keys.responder_keys("r").len(), 1, "the old one is dropped");
        stop.cancel();
        follower.await.unwrap().unwrap();
    }
}
