//! Asking the underlay to mend a violation.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tautline_api::convert::{UNDERLAY_ANNOTATION, UNDERLAY_FINALIZER};
use tautline_core::{
    Snapshot,
    compliance_state::UnixTime,
    constraints,
    model::{self, Offer, Service},
};
use tautline_provider_client::{MitigationRequest, planning_round::provider_name};
use tautline_runtime::{
    events::{EventNote, reference_to_own},
    finalizers,
    lease::Term,
};

use crate::{
    app::Shared,
    decisions::Decision,
    status::{moment_of, now, time_of},
    violations::Case,
    write,
};

/// The same is not said of a binding again for so long.
const QUIET: Duration = Duration::from_secs(300);

/// Asks for a mitigation; gives the time that was noted for it. The note comes
/// first, so that a leader that dies in between is not followed by one that asks
/// at once again.
pub(crate) async fn mitigate(
    shared: &Shared,
    term: &Term,
    offer: &Offer,
    case: &Case,
) -> Option<UnixTime> {
    let snapshot = &shared.feed.snapshot();
    let (pod, mitigation) = what(snapshot, offer, case);
    let underlay = underlay_for(shared, snapshot, offer, case);
    let Some(underlay) = underlay else {
        no_underlay(shared, offer, case);
        return None;
    };
    if shared.config.dry_run {
        let text = format!("would ask {} to mitigate", provider_name(underlay));
        say(shared, case, "WouldMediate", false, text);
        return Some(now());
    }
    let at = time_of(now());
    if let Err(error) = write::mitigated(shared.client.clone(), &case.binding, &at).await {
        let text = format!("the mitigation could not be noted, so it was not asked for: {error}");
        say(shared, case, "Failed", true, text);
        return None;
    }
    let at = moment_of(&at);
    if !term.is_active() {
        return None;
    }
    match shared
        .discovery
        .mitigate(snapshot, underlay, &mitigation)
        .await
    {
        Err(error) => {
            let text = format!("{} did not mitigate: {error}", provider_name(underlay));
            say(shared, case, "MitigationFailed", true, text);
        }
        Ok(id) => {
            let text = match id.as_str() {
                "" => format!("{} was asked to mitigate", provider_name(underlay)),
                id => format!("{} mitigated by {id}", provider_name(underlay)),
            };
            say(shared, case, "Mitigated", false, text);
            if !id.is_empty() && !mitigation.ids.contains(&id) {
                keep(shared, snapshot, underlay, case, pod, &id).await;
            }
        }
    }
    Some(at)
}

/// Who could mend the violation. What holds the pod's allocations must: another
/// knows none of them.
pub(crate) fn underlay_for<'a>(
    shared: &Shared,
    snapshot: &'a Snapshot,
    offer: &Offer,
    case: &Case,
) -> Option<&'a Arc<Service>> {
    let (pod, _) = what(snapshot, offer, case);
    let holds = pod.filter(|p| !p.underlay.is_empty());
    match holds.and_then(|p| p.annotations.get(UNDERLAY_ANNOTATION)) {
        None => shared.discovery.underlay(snapshot, &offer.namespace),
        Some(named) => {
            let namespace = &offer.namespace;
            shared.discovery.underlay_named(snapshot, named, namespace)
        }
    }
}

/// What the underlay is told, and the pod that is to hold what it allocates.
fn what<'a>(
    snapshot: &'a Snapshot,
    offer: &Offer,
    case: &Case,
) -> (Option<&'a Arc<model::Pod>>, MitigationRequest) {
    let mut mitigation = MitigationRequest {
        rules: constraints::offer_rules(snapshot, offer).0,
        ..MitigationRequest::default()
    };
    // The source first, as ciena/turnbuckle's roles have it, then by name.
    let mut targets: Vec<_> = case.binding.targets.iter().collect();
    targets.sort_by_key(|(name, _)| (&***name != "source", &***name));
    let (mut holder, mut nodes) = (None, Vec::new());
    for (_, reference) in targets {
        if reference.kind != "Pod" {
            nodes.push(reference.name.clone());
            continue;
        }
        let Some(pod) = snapshot.pod(&reference.namespace, &reference.name) else {
            continue;
        };
        let node = pod.node.as_deref().unwrap_or_default();
        let by = |p: &model::Pod| p.annotations.get(UNDERLAY_ANNOTATION).map(str::to_owned);
        let same = holder.is_none_or(|h: &Arc<model::Pod>| by(h) == by(pod));
        // A pod leads, an endpoint is its peer.
        let place = if holder.is_none() { 0 } else { nodes.len() };
        nodes.insert(place, node.to_owned());
        holder = holder.or(Some(pod));
        if same {
            let ids = pod.underlay.iter().map(|id| id.to_string());
            mitigation.ids.extend(ids);
        }
    }
    let mut nodes = nodes.into_iter();
    mitigation.node = nodes.next().unwrap_or_default();
    mitigation.peer_node = nodes.next().unwrap_or_default();
    (holder, mitigation)
}

/// The pod holds what was allocated, so that it is given back when the pod goes.
async fn keep(
    shared: &Shared,
    snapshot: &Snapshot,
    underlay: &Service,
    case: &Case,
    pod: Option<&Arc<model::Pod>>,
    id: &str,
) {
    let kept = match pod {
        None => Err("the binding has no pod".to_owned()),
        Some(pod) => {
            let pods: Api<Pod> = Api::namespaced(shared.client.clone(), &pod.namespace);
            let finalizer = format!("{UNDERLAY_FINALIZER}{id}");
            let by = (UNDERLAY_ANNOTATION, &*provider_name(underlay));
            finalizers::add(&pods, &pod.name, &pod.uid, &finalizer, by)
                .await
                .map_err(|e| e.to_string())
        }
    };
    let Err(error) = kept else { return };
    let released = shared
        .discovery
        .release_underlay(snapshot, underlay, id)
        .await;
    let text = match released {
        Ok(()) => format!("{id} was released again, no pod could hold it: {error}"),
        Err(e) => format!("{id} is held by nobody ({error}) and could not be released: {e}"),
    };
    say(shared, case, "MitigationNotKept", true, text);
}

/// A violation is to be mediated and there is nobody to ask: said once for all
/// bindings of the offer.
pub(crate) fn no_underlay(shared: &Shared, offer: &Offer, case: &Case) {
    let text = "no Service of this namespace or a trusted one (--provider-namespaces) is labelled \
                constraint.ciena.com/underlay-controller, or not the one that holds the pod's \
                allocations";
    let code = "NoUnderlay";
    shared.metrics.mediation(code);
    let id = format!("{}/{}/{code}", offer.namespace, offer.name);
    shared.events.publish_once(id, QUIET, || {
        shared
            .decisions
            .push(Decision::of(case, "Mediate", code, text));
        let (ns, name) = (&offer.namespace, &offer.name);
        Some(EventNote {
            regarding: reference_to_own("ConstraintPolicyOffer", ns, name, &offer.uid),
            secondary: None,
            warning: true,
            reason: code.to_owned(),
            action: "Mediate",
            text: text.to_owned(),
        })
    });
}

fn say(shared: &Shared, case: &Case, code: &'static str, warning: bool, text: String) {
    shared.metrics.mediation(code);
    shared
        .decisions
        .push(Decision::of(case, "Mediate", code, &text));
    let regarding = case.regarding();
    let id = format!("{}/{code}", case.binding.key());
    let quiet = if warning { QUIET } else { Duration::ZERO };
    shared.events.publish_once(id, quiet, || {
        Some(EventNote {
            regarding,
            secondary: None,
            warning,
            reason: code.to_owned(),
            action: "Mediate",
            text,
        })
    });
}
