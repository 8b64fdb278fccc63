//! `bind`: reserve, write the Binding, confirm; a refusal releases. What cannot be
//! known (a Reserve or a write whose answer never came) ends at the reservation's
//! expiry.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::core::v1::{Binding, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::PostParams};
use tautline_api::convert;
use tautline_core::{ask::Subject, index::Object, nodes::NodeSet, selector::Labels};

use crate::{
    app::State,
    pod,
    wire::{BindArgs, WireError, bind_args, error_result},
};

/// Answers a bind request.
pub(crate) async fn answer(state: &State, json: &str) -> Result<Vec<u8>, WireError> {
    let args = bind_args(json)?;
    let Some(client) = &state.client else {
        return Ok(error_result(
            "this extender runs without a cluster and binds nothing",
        ));
    };
    match bind(state, client, &args).await {
        Ok(()) => {
            state.metrics.bind("bound");
            Ok(b"{}".to_vec())
        }
        Err((outcome, error)) => {
            state.metrics.bind(outcome);
            tracing::info!(pod = %args.pod, namespace = %args.namespace, node = %args.node, %error, "not bound");
            Ok(error_result(&error))
        }
    }
}

async fn bind(
    state: &State,
    client: &Client,
    args: &BindArgs,
) -> Result<(), (&'static str, String)> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &args.namespace);
    let object = format!("pod {}/{}", args.namespace, args.pod);
    let snapshot = state.feed.snapshot();
    let limit = state.config.deadline;
    let mut subject = Subject {
        namespace: args.namespace.clone(),
        name: args.pod.clone(),
        uid: args.uid.clone(),
        labels: Labels::default(),
    };
    match snapshot.pod(&args.namespace, &args.pod) {
        Some(known) if *known.uid == *args.uid => subject.labels = known.labels.clone(),
        // The watch is behind: a governed pod must not slip past its reservation.
        _ if !snapshot.offers_in(&args.namespace).is_empty() => {
            let now = get(&pods, args, limit).await.map_err(|e| ("failed", e))?;
            if now.metadata.uid.as_deref() != Some(&args.uid) {
                return Err((
                    "failed",
                    format!("{object} is another by now: its UID has changed"),
                ));
            }
            subject.labels = convert::labels_of(now.metadata.labels.as_ref());
        }
        _ => {}
    }
    let governed = !state.config.exempt_namespaces.contains(&subject.namespace)
        && tautline_core::ask::is_governed(&snapshot, &subject);
    let held = if governed && state.has_allocator(&snapshot, &subject) {
        let whole = get(&pods, args, limit).await.map_err(|e| ("failed", e))?;
        let question = pod::question_of(&whole, subject, NodeSet::default());
        state
            .discovery
            .reserve(&snapshot, &question, &args.node)
            .await
            .map_err(|e| ("refused", e.to_string()))?
    } else {
        Vec::new()
    };
    let mut annotations = BTreeMap::new();
    for reservation in &held {
        annotations.extend(reservation.annotations.clone());
    }
    let written = tokio::time::timeout(limit, write(&pods, args, annotations)).await;
    // Only the API server's own word is a refusal; anything else may have arrived.
    let refused = matches!(written, Ok(Err(kube::Error::Api(_))));
    let written = match written {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(_) => Err(format!("the API server did not answer within {limit:?}")),
    };
    match written {
        Ok(()) => {
            state.discovery.confirm(&snapshot, &held).await;
            if let Some(known) = snapshot.pod(&args.namespace, &args.pod) {
                // Peers placed next must see it before the watch says so.
                let mut bound = (**known).clone();
                bound.node = Some(args.node.as_str().into());
                bound.placement = None;
                state.feed.apply(Object::Pod(bound));
            }
            Ok(())
        }
        Err(error) => {
            let bound = match get(&pods, args, limit).await {
                Ok(now) if now.metadata.uid.as_deref() == Some(&args.uid) => {
                    convert::pod(&now).node.as_deref() == Some(&args.node)
                }
                _ => false,
            };
            if bound {
                state.discovery.confirm(&snapshot, &held).await;
                return Ok(());
            }
            if refused {
                state.discovery.release(&snapshot, &held).await;
            }
            // Else the write may still arrive: giving the device to another now
            // could grant it twice, so the reservation is left to its expiry.
            Err(("failed", format!("{object}: {error}")))
        }
    }
}

/// The pod as the API server has it, within the limit.
async fn get(pods: &Api<Pod>, args: &BindArgs, limit: Duration) -> Result<Pod, String> {
    let object = format!("pod {}/{}", args.namespace, args.pod);
    match tokio::time::timeout(limit, pods.get(&args.pod)).await {
        Ok(result) => result.map_err(|e| format!("{object}: {e}")),
        Err(_) => Err(format!(
            "{object}: the API server did not answer within {limit:?}"
        )),
    }
}

/// One write binds the pod and records what was reserved for it: the API server
/// merges a Binding's annotations into the pod.
async fn write(
    pods: &Api<Pod>,
    args: &BindArgs,
    annotations: BTreeMap<String, String>,
) -> Result<(), kube::Error> {
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(args.pod.clone()),
            namespace: Some(args.namespace.clone()),
            uid: Some(args.uid.clone()).filter(|u| !u.is_empty()),
            annotations: Some(annotations).filter(|a| !a.is_empty()),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Node".into()),
            name: Some(args.node.clone()),
            ..ObjectReference::default()
        },
    };
    let _: k8s_openapi::apimachinery::pkg::apis::meta::v1::Status = pods
        .create_subresource("binding", &args.pod, &PostParams::default(), &binding)
        .await?;
    Ok(())
}
