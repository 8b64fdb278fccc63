//! Watches bindings and sends their changes to a channel, in order.

use std::sync::Arc;

use futures::StreamExt;
use kube::{Api, Client, ResourceExt, core::DeserializeGuard};
use kube_runtime::{WatchStreamExt, watcher};
use tautline_api::constraint::ConstraintPolicyBinding;
use tautline_runtime::{
    backoff::WatchBackoff,
    error_text::error_text,
    watch_changes::{Change, Changes},
};
use tokio::sync::mpsc;

use crate::{
    binding_spec::{BindingSpec, BindingStatus, key},
    reconciler::BindingEvent,
};

pub(crate) async fn run(client: Client, events: mpsc::Sender<BindingEvent>) {
    let api: Api<DeserializeGuard<ConstraintPolicyBinding>> = Api::all(client);
    let stream = watcher(api, watcher::Config::default()).backoff(WatchBackoff::default());
    let mut stream = std::pin::pin!(stream);
    let mut changes = Changes::default();
    while let Some(event) = stream.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                let error = error_text(&error);
                tracing::warn!(kind = "constraintpolicybindings", error, "watch restarts");
                continue;
            }
        };
        let change = match changes.next(event, decode) {
            Some(Change::Replaced(list)) => BindingEvent::All(
                list.into_iter()
                    .filter_map(|(_, binding)| binding)
                    .collect(),
            ),
            Some(Change::Applied((_, Some(binding)))) => BindingEvent::Applied(Box::new(binding)),
            Some(Change::Deleted(((key, uid), _))) => BindingEvent::Deleted(key, uid),
            Some(Change::Applied((_, None))) | None => continue,
        };
        if events.send(change).await.is_err() {
            return;
        }
    }
}

/// The key and UID of a binding, and its content if it is valid.
type Decoded = ((Arc<str>, Box<str>), Option<(BindingSpec, BindingStatus)>);

fn decode(guarded: DeserializeGuard<ConstraintPolicyBinding>) -> Decoded {
    let key = key(
        &guarded.namespace().unwrap_or_default(),
        &guarded.name_any(),
    );
    let uid = guarded.uid().unwrap_or_default().into();
    let binding = match guarded.0 {
        Ok(binding) => Some((
            BindingSpec::from(&binding),
            binding.status.unwrap_or_default(),
        )),
        Err(error) => {
            tracing::warn!(error = %error.error, "a ConstraintPolicyBinding cannot be used");
            None
        }
    };
    ((key, uid), binding)
}
