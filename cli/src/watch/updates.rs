//! Watches the bindings of a cluster for `tautline watch`, and reconnects after each failure, with
//! waits that grow from 0.5 s to 8 s.

use std::time::Duration;

use futures::StreamExt;
use kube::{Api, core::DeserializeGuard};
use kube_runtime::watcher;
use tautline_api::ConstraintPolicyBinding;
use tokio::sync::mpsc::Sender;

use crate::fetch;

/// The first wait between attempts; each further wait doubles, up to [`LAST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LAST_WAIT: Duration = Duration::from_secs(8);

/// A binding, or the error of a malformed one, which must not end the watch.
pub(super) type GuardedBinding = DeserializeGuard<ConstraintPolicyBinding>;

pub(super) enum Update {
    Event(Box<watcher::Event<GuardedBinding>>),
    /// The connection is down, with the error.
    Disconnected(String),
}

/// Sends the updates of bindings; ends when the receiver is dropped.
pub(super) async fn send_updates(api: Api<GuardedBinding>, listener: Sender<Update>) {
    let mut wait = FIRST_WAIT;
    loop {
        // A resumed watcher is silent until something changes. A new one lists first, which
        // shows that the connection is back.
        let mut events = std::pin::pin!(watcher(api.clone(), watcher::Config::default()));
        let mut lost = "the watch ended".to_owned();
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    lost = reason(&error);
                    break;
                }
            };
            if matches!(event, watcher::Event::InitDone) {
                wait = FIRST_WAIT;
            }
            if listener.send(Update::Event(Box::new(event))).await.is_err() {
                return;
            }
        }
        if listener.send(Update::Disconnected(lost)).await.is_err() {
            return;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LAST_WAIT);
    }
}

fn reason(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => fetch::cause(error),
        other => other.to_string(),
    }
}
