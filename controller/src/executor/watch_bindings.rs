//! The watch on bindings. Its events go to the reconciler in order.

use anyhow::Result;
use futures::StreamExt;
use kube::{Api, Client, ResourceExt, core::DeserializeGuard};
use kube_runtime::{WatchStreamExt, watcher};
use tautline_api::constraint::ConstraintPolicyBinding;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    binding_spec::{BindingSpec, key},
    reconciler::BindingEvent,
};

/// Watches the bindings until `stop`.
pub(crate) async fn run(
    client: Client,
    events: mpsc::Sender<BindingEvent>,
    stop: CancellationToken,
) -> Result<()> {
    let api: Api<DeserializeGuard<ConstraintPolicyBinding>> = Api::all(client);
    let stream = watcher(api, watcher::Config::default()).default_backoff();
    let mut stream = std::pin::pin!(stream);
    let mut listing = Vec::new();
    let decode = |guarded: DeserializeGuard<ConstraintPolicyBinding>| match guarded.0 {
        Ok(binding) => Some((
            BindingSpec::from(&binding),
            binding.status.unwrap_or_default(),
        )),
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
        let change = match event {
            Ok(watcher::Event::Init) => {
                listing.clear();
                continue;
            }
            Ok(watcher::Event::InitApply(o)) => {
                listing.extend(decode(o));
                continue;
            }
            Ok(watcher::Event::InitDone) => BindingEvent::All(std::mem::take(&mut listing)),
            Ok(watcher::Event::Apply(o)) => match decode(o) {
                Some(binding) => BindingEvent::Applied(Box::new(binding)),
                None => continue,
            },
            Ok(watcher::Event::Delete(o)) => {
                let key = key(&o.namespace().unwrap_or_default(), &o.name_any());
                BindingEvent::Deleted(key, o.uid().unwrap_or_default().into())
            }
            Err(error) => {
                tracing::warn!(%error, "the watch on bindings starts again; are the CRDs installed?");
                continue;
            }
        };
        if events.send(change).await.is_err() {
            return Ok(());
        }
    }
}
