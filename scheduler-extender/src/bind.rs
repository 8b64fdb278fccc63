//! Handles `bind`: allocates at the underlay if the plan says so, reserves at allocators, writes
//! the Binding, and confirms, or releases if the Binding is refused. After a Reserve or a write
//! without an answer the reservation expires, and the pod's finalizer retains the underlay's
//! allocation.

mod allocate;
mod allocation;
mod context;
mod finalizer;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{Binding, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status},
};
use kube::{Api, Client, api::PostParams};
use tautline_api::convert;
use tautline_core::{Snapshot, constraints::PodIdentity, nodes::NodeSet};
use tautline_provider_client::allocate::Reservation;
use tautline_runtime::api_call::within;
use tautline_traces::{Caller, KeyValue, Span};
use tokio_util::sync::CancellationToken;

use self::{
    allocation::Allocation,
    context::{BindContext, BindFailure, PodClient},
};
use crate::{
    groups::GroupBind,
    pod, spans,
    state::State,
    wire::{BindArgs, WireError, bind_args, error_result},
};

type Annotations = BTreeMap<String, String>;

pub(crate) async fn bind(
    state: &Arc<State>,
    json: &str,
    caller: &Caller,
    left: &CancellationToken,
) -> Result<Vec<u8>, WireError> {
    let args = bind_args(json)?;
    let Some(client) = &state.client else {
        return Ok(error_result(
            "this extender runs without a cluster and binds nothing",
        ));
    };
    match bind_pod(state, client, &args, caller, left).await {
        Ok(()) => {
            state.metrics.bind("bound");
            if !state.config.authenticates_clients() {
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

async fn bind_pod(
    state: &Arc<State>,
    client: &Client,
    args: &BindArgs,
    caller: &Caller,
    left: &CancellationToken,
) -> Result<(), BindFailure> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &args.namespace);
    let client = PodClient {
        pods: &pods,
        args,
        timeout: state.config.deadline,
    };
    let snapshot = state.store.snapshot();
    let pod = identity(&snapshot, client).await?;
    check_against_filter(state, args)?;
    let context = BindContext {
        state,
        snapshot: &snapshot,
        client,
        args,
        pod: &pod,
        constraints: &state.constraints(&snapshot, &pod),
    };
    let span = span(context, caller);
    let result = span.scope(async {
        let failed = |why| ("group", format!("{}: {why}", context.client.object()));
        let group = GroupBind::begin(state, &snapshot, &pod, args, left);
        let Some(mut group) = group.map_err(failed)? else {
            return carry_out(context, None).await;
        };
        group.until_reserve().await.map_err(failed)?;
        let result = carry_out(context, Some(&mut group)).await;
        match &result {
            Ok(()) => group.written(),
            Err((_, error)) => group.fail(error),
        }
        result
    });
    let result = result.await;
    if let Err((outcome, error)) = &result {
        span.fail(|| format!("{outcome}: {error}"));
    }
    result
}

/// The span of a bind, which is empty for an ungoverned pod.
fn span(context: BindContext<'_>, caller: &Caller) -> Span {
    let (state, args) = (context.state, context.args);
    if context.constraints.is_empty() {
        return Span::default();
    }
    let filtered = state.plans.get(&args.namespace, &args.uid);
    let span = match &filtered {
        Some(plan) => state.config.traces.span("bind", &caller.or(&plan.span)),
        None => state.config.traces.span("bind", caller),
    };
    spans::pod(&span, context.pod);
    span.record(|| [KeyValue::new("k8s.node.name", args.node.clone())]);
    span
}

async fn carry_out(
    context: BindContext<'_>,
    group: Option<&mut GroupBind>,
) -> Result<(), BindFailure> {
    let BindContext {
        state,
        snapshot,
        client,
        args,
        ..
    } = context;
    let mut allocation = context.allocate().await?;
    let attempted = if has_allocator(context) {
        reserve(context).await
    } else {
        Ok(Vec::new())
    };
    let reserved = match (attempted, &allocation) {
        (Ok(reserved), _) => reserved,
        (Err(failure), None) => return Err(failure),
        (Err(failure), Some(allocation)) => {
            allocation.undo().await;
            return Err(failure);
        }
    };
    if let Some(group) = group
        && let Err(why) = group.until_write().await
    {
        state.providers.release(snapshot, &reserved).await;
        if let Some(allocation) = &allocation {
            allocation.undo().await;
        }
        return Err(("group", format!("{}: {why}", client.object())));
    }
    let (was_refused, error) = match write(context, &reserved, &mut allocation).await {
        Write::Bound => {
            state.providers.confirm(snapshot, &reserved).await;
            publish_bound(state, args);
            return Ok(());
        }
        Write::Refused(error) => (true, error),
        Write::Expired => (true, "its reservation expired before it was bound".into()),
        Write::Unknown(error) => (false, error),
    };
    let bound = client.get().await.ok().filter(|now| {
        now.metadata.uid.as_deref() == Some(&args.uid)
            && convert::pod(now).node.as_deref() == Some(&args.node)
    });
    if let Some(now) = bound {
        if let Some(allocation) = &allocation {
            allocation.release_if_unused(&now).await;
        }
        state.providers.confirm(snapshot, &reserved).await;
        return Ok(());
    }
    if was_refused {
        state.providers.release(snapshot, &reserved).await;
        if let Some(allocation) = &allocation {
            allocation.undo().await;
        }
    }
    // Otherwise the write may still arrive, and a release now could grant the device twice. The
    // reservation expires, and the finalizer retains the allocation.
    Err(("failed", format!("{}: {error}", client.object())))
}

async fn identity(snapshot: &Snapshot, client: PodClient<'_>) -> Result<PodIdentity, BindFailure> {
    let args = client.args;
    let pod = match snapshot.pod(&args.namespace, &args.pod) {
        Some(cached) if *cached.uid == *args.uid => PodIdentity::from(&**cached),
        // The watch lags behind, and a governed pod must not be bound without its reservation.
        _ if !snapshot.offers_in(&args.namespace).is_empty() => {
            let pod = client.get().await?;
            if pod.metadata.uid.as_deref() != Some(&args.uid) {
                let object = client.object();
                return Err((
                    "failed",
                    format!("{object} is another pod now: its UID has changed"),
                ));
            }
            PodIdentity::from(&convert::pod(&pod))
        }
        _ => PodIdentity::default(),
    };
    Ok(PodIdentity {
        namespace: args.namespace.clone(),
        name: args.pod.clone(),
        uid: args.uid.clone(),
        ..pod
    })
}

/// Refuses a bind to a node that filter has not returned for the pod, unless clients are
/// authenticated: kube-scheduler never requests such a node.
fn check_against_filter(state: &State, args: &BindArgs) -> Result<(), BindFailure> {
    if state.config.authenticates_clients() {
        return Ok(());
    }
    let Some(plan) = state.plans.get(&args.namespace, &args.uid) else {
        return Ok(());
    };
    let at = plan.nodes.position(&args.node);
    if at.is_some_and(|at| plan.answer.contains(at)) {
        return Ok(());
    }
    Err((
        "refused",
        format!(
            "pod {}/{}: node {} is not in filter's answer for it; use --tls-client-ca to allow \
             only kube-scheduler",
            args.namespace, args.pod, args.node
        ),
    ))
}

fn has_allocator(context: BindContext<'_>) -> bool {
    let (providers, snapshot) = (&context.state.providers, context.snapshot);
    context.constraints.iter().any(|constraints| {
        constraints.rules.iter().any(|rule| {
            let namespace = &constraints.offer.namespace;
            providers
                .allocator(snapshot, &rule.name, namespace)
                .is_some()
        })
    })
}

async fn reserve(context: BindContext<'_>) -> Result<Vec<Reservation>, BindFailure> {
    let (providers, snapshot) = (&context.state.providers, context.snapshot);
    let args = context.args;
    let asked = context.state.plans.question(&args.namespace, &args.uid);
    // kube-scheduler may have allocated the pod's claims since.
    let question = match asked.filter(|asked| asked.resource_claims.is_empty()) {
        Some(asked) => asked,
        None => {
            let pod = context.client.get().await?;
            let identity = context.pod.clone();
            Arc::new(pod::question(&pod, identity, NodeSet::default()))
        }
    };
    let reserved = providers
        .reserve(snapshot, context.constraints, &question, &args.node)
        .await
        .map_err(|e| ("refused", e.to_string()))?;
    let Some(key) = overwritten(&question.annotations, &reserved) else {
        return Ok(reserved);
    };
    let error = format!(
        "{} already has the annotation {key}, with another value than the reservation's: create \
         the pod without it",
        context.client.object()
    );
    providers.release(snapshot, &reserved).await;
    Err(("refused", error))
}

/// An annotation of the pod's author that a reservation would change.
fn overwritten<'a>(existing: &Annotations, reserved: &'a [Reservation]) -> Option<&'a String> {
    let written = reserved.iter().flat_map(|r| &r.annotations);
    let mut changed =
        written.filter(|(key, value)| existing.get(*key).is_some_and(|v| v != *value));
    changed.next().map(|(key, _)| key)
}

enum Write {
    Bound,
    Refused(String),
    /// The Binding was not sent, because a reservation has expired.
    Expired,
    /// The Binding may have been written.
    Unknown(String),
}

/// Writes the Binding. After a conflict it tries again as long as the allocation stays valid.
async fn write(
    context: BindContext<'_>,
    reserved: &[Reservation],
    allocation: &mut Option<Allocation<'_>>,
) -> Write {
    let mut annotations = Annotations::new();
    for reservation in reserved {
        annotations.extend(reservation.annotations.clone());
    }
    loop {
        // After a reservation's end the device may belong to another pod.
        let timeout = reserved
            .iter()
            .map(Reservation::remaining)
            .fold(context.client.timeout, Duration::min);
        if timeout.is_zero() {
            return Write::Expired;
        }
        let version = allocation.as_ref().and_then(Allocation::pod_version);
        let binding = binding(context.args, annotations.clone(), version);
        let params = PostParams::default();
        let created = context.client.pods.create_subresource::<_, Status>(
            "binding",
            &context.args.pod,
            &params,
            &binding,
        );
        let error = match within(timeout, created).await {
            Ok(_) => return Write::Bound,
            Err(error) => error,
        };
        // Only a 4xx is a refusal: after a 5xx the Binding may still be written.
        if error.code().is_none_or(|code| code >= 500) {
            return Write::Unknown(error.to_string());
        }
        let is_conflict = error.code() == Some(409);
        let retries = match allocation {
            Some(allocation) if is_conflict => allocation.can_retry().await,
            _ => false,
        };
        if !retries {
            return Write::Refused(error.to_string());
        }
    }
}

/// Makes the Binding, whose annotations the API server merges into the pod. With a version the
/// Binding applies only to that version of the pod.
fn binding(args: &BindArgs, annotations: Annotations, version: Option<String>) -> Binding {
    Binding {
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
    }
}

/// Sets the pod's node in the store, so that peers placed next see it before the watch does.
fn publish_bound(state: &State, args: &BindArgs) {
    // The underlay's finalizer may have changed the pod since the bind began.
    let snapshot = state.store.snapshot();
    let cached = snapshot.pod(&args.namespace, &args.pod);
    if let Some(cached) = cached.filter(|cached| *cached.uid == *args.uid) {
        let mut bound = (**cached).clone();
        bound.node = Some(args.node.as_str().into());
        bound.placement = None;
        state.store.replace(cached, bound);
    }
}
