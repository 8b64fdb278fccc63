//! The watch on bindings: what it brings goes to the keeper, in order.

use anyhow::Result;
use futures::StreamExt;
use kube::{Api, Client, ResourceExt, core::DeserializeGuard};
use kube_runtime::{WatchStreamExt, watcher};
use tautline_api::constraint::ConstraintPolicyBinding;
use tautline_core::model::key;
use tautline_runtime::watch_changes::{Change, Changes};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::known::{Key, Known, Status};

/// A change of the bindings.
pub(crate) enum BindingEvent {
    Applied(Box<(Known, Status)>),
    /// The binding of this key and UID.
    Deleted(Key, Box<str>),
    /// All there are.
    All(Vec<(Known, Status)>),
}

/// Follows the bindings until told to stop.
pub(crate) async fn follow(
    client: Client,
    events: mpsc::Sender<BindingEvent>,
    stop: CancellationToken,
) -> Result<()> {
    let api: Api<DeserializeGuard<ConstraintPolicyBinding>> = Api::all(client);
    let stream = watcher(api, watcher::Config::default()).default_backoff();
    let mut stream = std::pin::pin!(stream);
    let mut changes = Changes::default();
    let usable = |guarded: DeserializeGuard<ConstraintPolicyBinding>| match guarded.0 {
        Ok(binding) => {
            let known = Known::of(&binding);
            Some((known, binding.status.unwrap_or_default()))
        }
        Err(error) => {
            tracing::warn!(error = %error.error, "a ConstraintPolicyBinding cannot be used");
            None
        }
    };
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            event = stream.next() => match event { Some(event) => event, None => return Ok(()) },
        };
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                tracing::warn!(%error, "the watch on bindings starts again; are the CRDs installed?");
                continue;
            }
        };
        let keyed = |o: DeserializeGuard<ConstraintPolicyBinding>| {
            let key = key(&o.namespace().unwrap_or_default(), &o.name_any());
            ((key, o.uid().unwrap_or_default()), usable(o))
        };
        let change = match changes.next(event, keyed) {
            Some(Change::Replaced(list)) => BindingEvent::All(
                list.into_iter()
                    .filter_map(|(_, binding)| binding)
                    .collect(),
            ),
            Some(Change::Applied((_, Some(binding)))) => BindingEvent::Applied(Box::new(binding)),
            Some(Change::Deleted(((key, uid), _))) => BindingEvent::Deleted(key.into(), uid.into()),
            Some(Change::Applied((_, None))) | None => continue,
        };
        if events.send(change).await.is_err() {
            return Ok(());
        }
    }
}
