//! `bind`: allocate at the underlay if the plan says so, reserve, write the Binding,
//! confirm; a refusal releases. What cannot be known (a Reserve or a write whose
//! answer never came) ends at the reservation's expiry; of the underlay the pod's
//! finalizer tells.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::core::v1::{Binding, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::PostParams};
use tautline_api::convert;
use tautline_core::{Snapshot, constraints::PodIdentity, nodes::NodeSet, selector::Labels};
use tautline_provider_client::allocate::Reservation;

use crate::{
    app::State,
    pod,
    underlay::bind::{self as underlay, Failure},
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
            if !state.config.knows_clients() {
                tracing::info!(pod = %args.pod, namespace = %args.namespace, node = %args.node, "bound for an unauthenticated client");
            }
            Ok(b"{}".to_vec())
        }
        Err((outcome, error)) => {
            state.metrics.bind(outcome);
            tracing::info!(pod = %args.pod, namespace = %args.namespace, node = %args.node, %error, "not bound");
            Ok(error_result(&error))
        }
    }
}

async fn bind(state: &State, client: &Client, args: &BindArgs) -> Result<(), Failure> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &args.namespace);
    let object = format!("pod {}/{}", args.namespace, args.pod);
    let snapshot = state.feed.snapshot();
    let limit = state.config.deadline;
    let mut subject = PodIdentity {
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
            subject.labels = convert::labels(now.metadata.labels.as_ref());
        }
        _ => {}
    }
    agrees_with_filter(state, args)?;
    let governed = !state.config.exempt_namespaces.contains(&subject.namespace)
        && tautline_core::constraints::is_governed(&snapshot, &subject);
    let about = underlay::Bind {
        state,
        snapshot: &snapshot,
        pods: &pods,
        args,
        subject: &subject,
    };
    let mut path = underlay::prepare(about, governed).await?;
    let held = match governed && state.has_allocator(&snapshot, &subject) {
        true => reserve(state, &snapshot, &pods, args, &subject).await,
        false => Ok(Vec::new()),
    };
    let held = match (held, &path) {
        (Ok(held), _) => held,
        (Err(failure), None) => return Err(failure),
        (Err(failure), Some(path)) => {
            path.undo().await;
            return Err(failure);
        }
    };
    let mut annotations = BTreeMap::new();
    for reservation in &held {
        annotations.extend(reservation.annotations.clone());
    }
    let written = loop {
        // Later than this the device may be another pod's.
        let limit = held
            .iter()
            .map(Reservation::remaining)
            .fold(limit, Duration::min);
        if limit.is_zero() {
            break Written::TooLate;
        }
        let version = path.as_ref().and_then(|p| p.version());
        let write = write(&pods, args, annotations.clone(), version);
        let written = match tokio::time::timeout(limit, write).await {
            Ok(Ok(())) => Written::Bound,
            // Only the API server's own word is a refusal; anything else may have
            // arrived, and what it answers with 5xx may still be written.
            Ok(Err(kube::Error::Api(e))) if e.code < 500 => Written::Refused(e),
            Ok(Err(error)) => Written::Unknown(error.to_string()),
            Err(_) => Written::Unknown(format!("the API server did not answer within {limit:?}")),
        };
        let conflict = matches!(&written, Written::Refused(e) if e.code == 409);
        let Some(path) = path.as_mut().filter(|_| conflict) else {
            break written;
        };
        if !path.again().await {
            break written;
        }
    };
    let (refused, error) = match written {
        Written::Bound => (false, None),
        Written::Refused(error) => (true, Some(error.to_string())),
        Written::TooLate => (
            true,
            Some("its reservation ran out before it was bound".into()),
        ),
        Written::Unknown(error) => (false, Some(error)),
    };
    match error {
        None => {
            state.discovery.confirm(&snapshot, &held).await;
            // As it is now: the underlay's finalizer has come since.
            let now = state.feed.snapshot();
            let known = now.pod(&args.namespace, &args.pod);
            if let Some(known) = known.filter(|known| *known.uid == *args.uid) {
                // Peers placed next must see it before the watch says so.
                let mut bound = (**known).clone();
                bound.node = Some(args.node.as_str().into());
                bound.placement = None;
                state.feed.replace(known, bound);
            }
            Ok(())
        }
        Some(error) => {
            let bound = get(&pods, args, limit).await.ok().filter(|now| {
                now.metadata.uid.as_deref() == Some(&args.uid)
                    && convert::pod(now).node.as_deref() == Some(&args.node)
            });
            if let Some(now) = bound {
                if let Some(path) = &path {
                    path.settle(&now).await;
                }
                state.discovery.confirm(&snapshot, &held).await;
                return Ok(());
            }
            if refused {
                state.discovery.release(&snapshot, &held).await;
                if let Some(path) = &path {
                    path.undo().await;
                }
            }
            // Else the write may still arrive: giving the device to another now
            // could grant it twice, so the reservation is left to its expiry, and
            // the underlay's to the finalizer.
            Err(("failed", format!("{object}: {error}")))
        }
    }
}

/// Refuses a bind to a node that filter has not answered for this pod, where anybody may
/// ask for one: kube-scheduler takes no other.
fn agrees_with_filter(state: &State, args: &BindArgs) -> Result<(), Failure> {
    if state.config.knows_clients() {
        return Ok(());
    }
    let Some(plan) = state.plans.get(&args.uid) else {
        return Ok(());
    };
    let answered = plan
        .plan
        .shortlist(&plan.nodes, state.config.shortlist, &args.uid);
    let at = plan.nodes.position(&args.node);
    if at.is_some_and(|at| answered.binary_search(&at).is_ok()) {
        return Ok(());
    }
    Err((
        "refused",
        format!(
            "pod {}/{}: node {} is not in filter's answer for it; with --tls-client-ca \
             kube-scheduler alone may ask",
            args.namespace, args.pod, args.node
        ),
    ))
}

/// What became of a Binding.
enum Written {
    Bound,
    Refused(Box<kube::core::Status>),
    /// It was not sent: what was reserved for it may be gone.
    TooLate,
    /// It may have arrived.
    Unknown(String),
}

async fn reserve(
    state: &State,
    snapshot: &Snapshot,
    pods: &Api<Pod>,
    args: &BindArgs,
    subject: &PodIdentity,
) -> Result<Vec<Reservation>, Failure> {
    let limit = state.config.deadline;
    let whole = get(pods, args, limit).await.map_err(|e| ("failed", e))?;
    let question = pod::question_of(&whole, subject.clone(), NodeSet::default());
    let reserved = state.discovery.reserve(snapshot, &question, &args.node);
    let held = reserved.await.map_err(|e| ("refused", e.to_string()))?;
    let own = whole.metadata.annotations.unwrap_or_default();
    match overwritten(&own, &held) {
        None => Ok(held),
        Some(key) => {
            state.discovery.release(snapshot, &held).await;
            Err((
                "refused",
                format!(
                    "pod {}/{} already has the annotation {key}, with another value than the \
                     reservation's: create the pod without it",
                    args.namespace, args.pod
                ),
            ))
        }
    }
}

/// An annotation that the pod has from its author and that a reservation would change.
fn overwritten<'a>(own: &BTreeMap<String, String>, held: &'a [Reservation]) -> Option<&'a String> {
    let written = held.iter().flat_map(|r| &r.annotations);
    let mut changed = written.filter(|(key, value)| own.get(*key).is_some_and(|v| v != *value));
    changed.next().map(|(key, _)| key)
}

/// The pod as the API server has it, within the limit.
pub(crate) async fn get(pods: &Api<Pod>, args: &BindArgs, limit: Duration) -> Result<Pod, String> {
    let object = format!("pod {}/{}", args.namespace, args.pod);
    match tokio::time::timeout(limit, pods.get(&args.pod)).await {
        Ok(result) => result.map_err(|e| format!("{object}: {e}")),
        Err(_) => Err(format!(
            "{object}: the API server did not answer within {limit:?}"
        )),
    }
}

/// One write binds the pod and records what was reserved for it: the API server
/// merges a Binding's annotations into the pod. With a version, only to the pod as
/// it was then.
async fn write(
    pods: &Api<Pod>,
    args: &BindArgs,
    annotations: BTreeMap<String, String>,
    version: Option<String>,
) -> Result<(), kube::Error> {
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(args.pod.clone()),
            namespace: Some(args.namespace.clone()),
            uid: Some(args.uid.clone()).filter(|u| !u.is_empty()),
            annotations: Some(annotations).filter(|a| !a.is_empty()),
            resource_version: version,
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
