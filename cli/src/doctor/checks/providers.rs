//! Each rule in use has one provider, and the provider has ready endpoints.

use std::collections::{BTreeMap, BTreeSet};

use tautline_core::{
    model::{ProviderUnavailable, Service},
    providers::{
        PRIORITY_ANNOTATION, PROVIDER_PORT, RULE_LABEL_PREFIXES, addresses, ambiguous_provider,
        choose_provider,
    },
};

use super::or_ok;
use crate::doctor::{
    cluster::State,
    finding::{Finding, counted, first_of},
    workload::Role,
};

/// Offers that one finding names.
const MAX_OFFERS: usize = 3;

/// The use of a rule in a namespace.
#[derive(Default)]
struct Use {
    offers: Vec<String>,
    /// An offer says `providerUnavailable: Reject`.
    rejects: bool,
}

pub(super) fn check(state: &State<'_>) -> Vec<Finding> {
    let cluster = state.cluster;
    if cluster.services.is_none() || cluster.offers.is_none() || cluster.policies.is_none() {
        return Vec::new();
    }
    let used = rules_in_use(state);
    let mut findings = Vec::new();
    let mut called = BTreeSet::new();
    for ((namespace, rule), used) in &used {
        match choose_provider(&state.snapshot, rule, namespace, &state.trusted) {
            None => findings.push(without_provider(state, namespace, rule, used)),
            Some(service) => {
                called.insert((service.namespace.clone(), service.name.clone()));
                findings.extend(ambiguous(state, namespace, rule, service));
                findings.extend(not_allowed(state, rule, service));
            }
        }
    }
    if cluster.slices.is_some() {
        for (namespace, name) in &called {
            let service = state.snapshot.service(namespace, name);
            findings.extend(service.and_then(|s| not_ready(state, s)));
        }
    }
    let passed = Finding::ok(
        "RulesProvided",
        counted(used.len(), "rule in use"),
        "each has a provider with a ready endpoint",
    );
    or_ok(findings, passed)
}

/// By namespace and rule.
fn rules_in_use(state: &State<'_>) -> BTreeMap<(String, String), Use> {
    let mut used = BTreeMap::<(String, String), Use>::new();
    for entry in state.snapshot.offers() {
        let offer = &entry.offer;
        let policies = offer.policies.iter();
        let rules: BTreeSet<&str> = policies
            .filter_map(|p| state.snapshot.policy(&offer.namespace, p))
            .flat_map(|p| p.rules.iter().map(|r| &*r.name))
            .collect();
        for rule in rules {
            let key = (offer.namespace.to_string(), rule.to_owned());
            let uses = used.entry(key).or_default();
            uses.offers.push(offer.name.to_string());
            uses.rejects |= offer.provider_unavailable == Some(ProviderUnavailable::Reject);
        }
    }
    used
}

fn object(namespace: &str, rule: &str) -> String {
    format!("rule {rule}, namespace {namespace}")
}

fn label(rule: &str) -> String {
    format!("{}{rule}", RULE_LABEL_PREFIXES[0])
}

fn service_object(service: &Service) -> String {
    format!("Service {}/{}", service.namespace, service.name)
}

fn without_provider(state: &State<'_>, namespace: &str, rule: &str, used: &Use) -> Finding {
    let offers = first_of(&used.offers, MAX_OFFERS);
    let effect = if used.rejects {
        "; pods stay Pending"
    } else {
        ""
    };
    let others = state.snapshot.providers(rule);
    if let Some(service) = others.first() {
        let text = format!(
            "{} has its label, but its namespace is not trusted (trusted: {}); used by {offers}{effect}",
            service_object(service),
            state.trusted
        );
        let fix = format!(
            "start extender, controller and admission server with --provider-namespaces {},{}",
            state.trusted, service.namespace
        );
        return Finding::problem("ProviderNotTrusted", object(namespace, rule), text, fix);
    }
    let text = format!("no Service has its label; used by {offers}{effect}");
    let fix = format!(
        "kubectl -n {} label service NAME {}=enabled",
        state.cluster.namespace,
        label(rule)
    );
    Finding::problem("RuleWithoutProvider", object(namespace, rule), text, fix)
}

fn ambiguous(state: &State<'_>, namespace: &str, rule: &str, chosen: &Service) -> Option<Finding> {
    let other = ambiguous_provider(&state.snapshot, rule, namespace, &state.trusted)?;
    let text = format!(
        "{} answers, and {} has the label too; only age or name decides",
        service_object(chosen),
        service_object(other)
    );
    let fix = format!(
        "kubectl -n {} label service {} {}-; or the annotation {PRIORITY_ANNOTATION} on one",
        other.namespace,
        other.name,
        label(rule)
    );
    let object = object(namespace, rule);
    Some(Finding::warning("ProviderAmbiguous", object, text, fix))
}

/// Services that the extender does not call.
fn not_allowed(state: &State<'_>, rule: &str, service: &Service) -> Option<Finding> {
    let extender = state.of(Role::Extender).next();
    let names = extender.and_then(|w| w.flag("--external-name-providers"));
    if service.external_name.is_some() && names.is_none_or(|n| n == "off") {
        let text = format!("provides {rule} and is of type ExternalName: it is not called");
        let fix = "endpoints in the cluster, or --external-name-providers remote of extender and \
                   controller";
        return Some(Finding::problem(
            "ProviderNotAllowed",
            service_object(service),
            text,
            fix,
        ));
    }
    if service.allocator && !state.trusted.contains(&service.namespace) {
        let text = format!(
            "provides {rule} and is an allocator outside the trusted namespaces: it is not called"
        );
        let fix = format!(
            "start extender and controller with --provider-namespaces {},{}",
            state.trusted, service.namespace
        );
        return Some(Finding::problem(
            "ProviderNotAllowed",
            service_object(service),
            text,
            fix,
        ));
    }
    None
}

fn not_ready(state: &State<'_>, service: &Service) -> Option<Finding> {
    let (namespace, name) = (&service.namespace, &service.name);
    let slices = state.snapshot.endpoint_slices(namespace, name);
    addresses(service, slices, PROVIDER_PORT)
        .is_empty()
        .then(|| {
            let rules: Vec<&str> = service.rules.iter().map(|r| &**r).collect();
            let text = format!("provides {} and has no ready endpoint", rules.join(", "));
            let fix = format!(
                "its selector must match ready pods: kubectl -n {namespace} get pods; \
             kubectl -n {namespace} describe service {name}"
            );
            Finding::problem("ProviderNotReady", service_object(service), text, fix)
        })
}
