//! Checks that offers can be used and evaluated, and that each rule in use has a provider.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use tautline_api::{constraint::Compliance, convert};
use tautline_core::{
    Snapshot,
    model::{ProviderUnavailable, Service},
    providers::{
        PRIORITY_ANNOTATION, PROVIDER_PORT, RULE_LABEL_PREFIXES, addresses, ambiguous_provider,
        choose_provider,
    },
};

use crate::doctor::{
    cluster::State,
    finding::{Finding, counted, first_of, passed, problem, warning},
    workload::Role,
};

/// The maximum number of offers that one finding names.
const MAX_OFFERS: usize = 3;

/// Checks that offers can be used, and that their policies exist.
pub(super) fn offers(state: &State<'_>, out: &mut Vec<Finding>) -> Option<Finding> {
    let offers = state.cluster.offers.as_ref()?;
    let policies = state.cluster.policies.as_ref()?;
    let invalid = |check, object: &str, error: String| {
        let text = format!("cannot be used: {error}");
        problem(check, object, text, "correct the field")
    };
    let mut names = BTreeSet::new();
    for policy in policies {
        let (namespace, name) = (policy.namespace().unwrap_or_default(), policy.name_any());
        if let Err(error) = convert::policy(policy) {
            let object = format!("ConstraintPolicy {namespace}/{name}");
            out.push(invalid("PolicyInvalid", &object, error.to_string()));
        }
        names.insert((namespace, name));
    }
    for offer in offers {
        let namespace = offer.namespace().unwrap_or_default();
        let object = format!("ConstraintPolicyOffer {namespace}/{}", offer.name_any());
        if let Err(error) = convert::offer(offer) {
            out.push(invalid("OfferInvalid", &object, error.to_string()));
            continue;
        }
        let exists = |policy: &str| names.contains(&(namespace.clone(), policy.to_owned()));
        for policy in offer.spec.policies.iter().filter(|p| !exists(p)) {
            let text = format!("names the ConstraintPolicy {policy}, which does not exist");
            let fix = format!(
                "create the policy in namespace {namespace}, or correct spec.policies; \
                 tautline get policies -n {namespace}"
            );
            out.push(problem("PolicyMissing", &object, text, fix));
        }
    }
    let text = "each can be used, and its policies exist";
    Some(passed("OffersUsable", counted(offers.len(), "offer"), text))
}

/// Adds a finding for each offer with bindings in Error.
pub(super) fn bindings(state: &State<'_>, out: &mut Vec<Finding>) -> Option<Finding> {
    let bindings = state.cluster.bindings.as_ref()?;
    // The number of an offer's bindings, and the names and reasons of those in Error.
    let mut by_offer = BTreeMap::<_, (usize, Vec<_>)>::new();
    for binding in bindings {
        let offer = (binding.namespace().unwrap_or_default(), &binding.spec.offer);
        let (total, failed) = by_offer.entry(offer).or_default();
        *total += 1;
        let status = binding.status.iter();
        let errors = status.filter(|s| s.compliance == Compliance::Error);
        failed.extend(errors.map(|s| (binding.name_any(), &s.first_reason)));
    }
    for ((namespace, offer), (total, failed)) in by_offer {
        let Some((name, reason)) = failed.first() else {
            continue;
        };
        let (count, of) = (failed.len(), counted(total, "binding"));
        let text = format!("{count} of {of} cannot be evaluated; {name}: {reason}");
        let fix = format!(
            "tautline describe binding {name} -n {namespace}; the code at the start of the reason \
             is in docs/troubleshooting.md"
        );
        let object = format!("ConstraintPolicyOffer {namespace}/{offer}");
        out.push(problem("BindingsInError", object, text, fix));
    }
    let object = counted(bindings.len(), "binding");
    Some(passed("BindingsEvaluated", object, "none is in Error"))
}

/// Checks that each rule in use has one provider, and that the provider has ready endpoints.
pub(super) fn providers(state: &State<'_>, out: &mut Vec<Finding>) -> Option<Finding> {
    let (cluster, snapshot, trusted) = (state.cluster, &state.snapshot, &state.trusted);
    cluster.services.as_ref()?;
    cluster.offers.as_ref()?;
    cluster.policies.as_ref()?;
    let used = rules_in_use(snapshot);
    let mut called = BTreeMap::new();
    for ((namespace, rule), (offers, rejects)) in &used {
        let object = format!("rule {rule}, namespace {namespace}");
        let label = format!("{}{rule}", RULE_LABEL_PREFIXES[0]);
        let Some(service) = choose_provider(snapshot, rule, namespace, trusted) else {
            let effect = rejects.then_some("; pods stay Pending").unwrap_or_default();
            let users = format!("used by {}{effect}", first_of(offers, MAX_OFFERS));
            let others = snapshot.providers(rule).iter();
            let other = others.min_by_key(|s| (&s.namespace, &s.name));
            out.push(if let Some(other) = other {
                let text = format!(
                    "{} has its label, but its namespace is not trusted (trusted: {trusted}); \
                     {users}",
                    title(other)
                );
                let fix = format!(
                    "start extender, controller and admission server with --provider-namespaces \
                     {trusted},{}",
                    other.namespace
                );
                problem("ProviderNotTrusted", object, text, fix)
            } else {
                let own = &cluster.namespace;
                let text = format!("no Service has its label; {users}");
                let fix = format!("kubectl -n {own} label service NAME {label}=enabled");
                problem("RuleWithoutProvider", object, text, fix)
            });
            continue;
        };
        if let Some(other) = ambiguous_provider(snapshot, rule, namespace, trusted) {
            let text = format!(
                "{} answers, and {} has the label too; only age or name decides",
                title(service),
                title(other)
            );
            let fix = format!(
                "kubectl -n {} label service {} {label}-; or the annotation {PRIORITY_ANNOTATION} \
                 on one",
                other.namespace, other.name
            );
            out.push(warning("ProviderAmbiguous", object, text, fix));
        }
        if let Some((why, fix)) = not_called(state, service) {
            let text = format!("provides {rule} and is {why}: it is not called");
            out.push(problem("ProviderNotAllowed", title(service), text, fix));
        }
        called.insert((&service.namespace, &service.name), service);
    }
    for ((namespace, name), service) in called {
        let slices = snapshot.endpoint_slices(namespace, name);
        if cluster.slices.is_some() && addresses(service, slices, PROVIDER_PORT).is_empty() {
            let rules = service.rules.join(", ");
            let text = format!("provides {rules} and has no ready endpoint");
            let fix = format!(
                "its selector must match ready pods: kubectl -n {namespace} get pods; \
                 kubectl -n {namespace} describe service {name}"
            );
            out.push(problem("ProviderNotReady", title(service), text, fix));
        }
    }
    let text = "each has a provider with a ready endpoint";
    Some(passed(
        "RulesProvided",
        counted(used.len(), "rule in use"),
        text,
    ))
}

fn title(service: &Service) -> String {
    format!("Service {}/{}", service.namespace, service.name)
}

/// Returns the rules in use by namespace and rule, each with its offers, and with true if one of
/// them has `providerUnavailable: Reject`.
fn rules_in_use(snapshot: &Snapshot) -> BTreeMap<(&str, &str), (Vec<&str>, bool)> {
    let mut used = BTreeMap::<_, (Vec<_>, bool)>::new();
    for entry in snapshot.offers() {
        let (offer, namespace) = (&entry.offer, &*entry.offer.namespace);
        let policies = offer.policies.iter();
        let policies = policies.filter_map(|p| snapshot.policy(namespace, p));
        let rules = policies.flat_map(|p| p.rules.iter().map(|r| &*r.name));
        for rule in rules.collect::<BTreeSet<_>>() {
            let (offers, rejects) = used.entry((namespace, rule)).or_default();
            offers.push(&*offer.name);
            *rejects |= offer.provider_unavailable == Some(ProviderUnavailable::Reject);
        }
    }
    used
}

/// Returns the reason why the extender does not call a Service, and the fix.
fn not_called(state: &State<'_>, service: &Service) -> Option<(&'static str, String)> {
    let (trusted, namespace) = (&state.trusted, &service.namespace);
    let extender = state.of(Role::Extender).next();
    let names = extender.and_then(|w| w.flag("--external-name-providers"));
    if service.external_name.is_some() && names.is_none_or(|n| n == "off") {
        let fix = "endpoints in the cluster, or --external-name-providers remote of extender and \
                   controller";
        return Some(("of type ExternalName", fix.to_owned()));
    }
    let fix =
        format!("start extender and controller with --provider-namespaces {trusted},{namespace}");
    let is_outside = service.allocator && !trusted.contains(namespace);
    is_outside.then_some(("an allocator outside the trusted namespaces", fix))
}
