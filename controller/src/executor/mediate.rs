//! Requests mitigations of violations from the underlay controller.

use std::sync::Arc;

use tautline_core::{
    compliance_state::UnixTime,
    model::{Offer, Pod, Service, key},
};

use super::calls::{Calls, Report};
use crate::{
    binding_status::{from_api_time, to_api_time},
    mitigation::{MitigationRequest, underlay_for},
    violations::Violation,
};

/// Requests a mitigation and returns the time that was recorded for it. The time is recorded before
/// the request: if this leader ends in between, the next one does not repeat the request at once.
pub(super) async fn mitigate<C: Calls>(
    calls: &C,
    offer: &Offer,
    violation: &Violation,
) -> Option<UnixTime> {
    let (snapshot, settings) = (calls.snapshot(), calls.settings());
    let request = MitigationRequest::new(&snapshot, offer, &violation.binding);
    let Some(underlay) = underlay_for(&snapshot, &settings.trusted, offer, &request) else {
        report_no_underlay(calls, offer, violation);
        return None;
    };
    let name = key(&underlay.namespace, &underlay.name);
    if settings.dry_run {
        let text = format!("would ask {name} to mitigate");
        report(calls, violation, "WouldMediate", false, text);
        return Some(calls.now().unix);
    }
    let at = to_api_time(calls.now().unix);
    if let Err(error) = calls.note_mitigation(&violation.binding, &at).await {
        let text = format!(
            "the mitigation could not be recorded, so the underlay was not called: {error}"
        );
        report(calls, violation, "Failed", true, text);
        return None;
    }
    if !calls.leads() {
        return None;
    }
    match calls.mitigate(underlay, &request).await {
        Err(error) => {
            let text = format!("{name} did not mitigate: {error}");
            report(calls, violation, "MitigationFailed", true, text);
        }
        Ok(id) => {
            let text = match id.as_str() {
                "" => format!("{name} was asked to mitigate"),
                id => format!("{name} mitigated by {id}"),
            };
            report(calls, violation, "Mitigated", false, text);
            if !id.is_empty() && !request.ids.contains(&id) {
                hold(calls, underlay, violation, request.holder.as_ref(), &id).await;
            }
        }
    }
    Some(from_api_time(&at))
}

/// Adds the finalizer of a new allocation to the pod, or releases the allocation if that fails.
async fn hold<C: Calls>(
    calls: &C,
    underlay: &Service,
    violation: &Violation,
    pod: Option<&Arc<Pod>>,
    id: &str,
) {
    let added = match pod {
        None => Err("the binding has no pod".to_owned()),
        Some(pod) => calls.hold_allocation(pod, underlay, id).await,
    };
    let Err(error) = added else { return };
    let text = match calls.release_allocation(underlay, id).await {
        Ok(()) => format!("{id} was released again, no pod could hold it: {error}"),
        Err(e) => format!("no pod holds {id} ({error}), and it could not be released: {e}"),
    };
    report(calls, violation, "MitigationNotKept", true, text);
}

pub(super) fn report_no_underlay<C: Calls>(calls: &C, offer: &Offer, violation: &Violation) {
    let text = "no Service of this namespace or a trusted one (--provider-namespaces) is labelled \
                constraint.ciena.com/underlay-controller, or not the one that holds the pod's \
                allocations";
    calls.report_no_underlay(offer, violation, text);
}

fn report<C: Calls>(
    calls: &C,
    violation: &Violation,
    code: &'static str,
    warning: bool,
    text: String,
) {
    let report = Report {
        action: "Mediate",
        code,
        warning,
        text,
    };
    calls.report(violation, report);
}
