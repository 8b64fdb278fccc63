//! Watches one object.

use std::fmt::Debug;

use futures::StreamExt;
use kube::{Api, Resource};
use kube_runtime::{WatchStreamExt, watcher::watch_object};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::{backoff::WatchBackoff, error_text::error_text};

/// Passes the object (`None` if absent) to `see` after each change; retries until `stop`.
pub async fn watch_single<K>(
    api: Api<K>,
    name: &str,
    stop: CancellationToken,
    mut see: impl FnMut(Option<K>) + Send,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = std::pin::pin!(watch_object(api, name).backoff(WatchBackoff::default()));
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => event,
        };
        match event {
            Some(Ok(object)) => see(object),
            Some(Err(error)) => {
                let error = error_text(&error);
                tracing::warn!(kind = %K::kind(&()), name, error, "watch restarts");
            }
            None => return,
        }
    }
}
