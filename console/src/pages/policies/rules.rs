//! The rules of offers and policies, with the Services that answer them.

use maud::{Markup, html};
use serde::Serialize;
use tautline_core::{
    TrustedNamespaces,
    index::{Kind, Snapshot},
    providers::{self, PROVIDER_PORT},
};

use crate::{
    Console,
    draw::clean_text as clean,
    links,
    request::PageRequest,
    table::{name, number, only_if, table, text},
};

/// The maximum number of rules of an offer or a policy.
pub(super) const MAX_RULES: usize = 64;
/// The label of the Services that answer a rule, without the name of the rule.
const LABEL: &str = "constraint.ciena.com/constraint-";

/// Returns whether the fields of the query select an object.
pub(super) fn is_wanted(request: &PageRequest, namespace: &str, name: &str) -> bool {
    let in_namespace = |wanted| wanted == namespace;
    request.field("namespace").is_none_or(in_namespace)
        && request.field("name").is_none_or(|part| name.contains(part))
}

/// Returns a text for each object of a kind whose current version cannot be used.
pub(super) fn unusable(console: &Console, kind: Kind) -> Vec<String> {
    let rejected = console.store.rejected(kind).into_iter();
    let texts = rejected.map(|(key, why)| format!("{key}: {why}; its last usable version counts"));
    texts.map(|text| clean(&text)).collect()
}

/// A rule of a policy.
#[derive(Serialize)]
pub(super) struct Rule {
    /// The name of the policy, where several policies are shown together.
    pub policy: Option<String>,
    pub name: String,
    pub request: String,
    pub limit: String,
    /// The weight of the rule; absent where several policies are shown together.
    pub weight: Option<i64>,
    #[serde(flatten)]
    pub provider: Provider,
}

/// The provider of a rule for one namespace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Provider {
    /// The `namespace/name` of the provider's Service; absent if there is none.
    pub service: Option<String>,
    /// The reason why the Service does not answer or may be the wrong one, with the remedy.
    pub problem: Option<String>,
}

impl Provider {
    pub(super) fn new(
        snapshot: &Snapshot,
        trusted: &TrustedNamespaces,
        namespace: &str,
        rule: &str,
    ) -> Self {
        let Some(service) = providers::choose_provider(snapshot, rule, namespace, trusted) else {
            return Self {
                service: None,
                problem: Some(missing(snapshot, namespace, rule)),
            };
        };
        let slices = snapshot.endpoint_slices(&service.namespace, &service.name);
        let other = providers::ambiguous_provider(snapshot, rule, namespace, trusted);
        let problem = match other {
            _ if providers::addresses(service, slices, PROVIDER_PORT).is_empty() => {
                Some("the Service has no ready endpoint".to_owned())
            }
            Some(other) => Some(format!(
                "Service {}/{} has the label, too: the older counts; remove one label",
                other.namespace, other.name
            )),
            None => None,
        };
        Self {
            service: Some(clean(&format!("{}/{}", service.namespace, service.name))),
            problem: problem.map(|p| clean(&p)),
        }
    }
}

fn missing(snapshot: &Snapshot, namespace: &str, rule: &str) -> String {
    let others = snapshot.providers(rule);
    let text = match others.first() {
        Some(other) => format!(
            "no Service answers it here: {}/{} is in an untrusted namespace and counts there only",
            other.namespace, other.name
        ),
        None => format!(
            "no Service answers it: label one {LABEL}{rule}=enabled, in {namespace} or in \
             Tautline's namespace"
        ),
    };
    clean(&text)
}

/// Renders the rules of an offer, with their policies, or those of a policy, with their weights.
pub(super) fn render(namespace: &str, rules: &[Rule], of_offer: bool) -> Markup {
    html! {
        (table(("", ""), rules, &[
            name("Rule", &|rule| html! { (rule.name) }),
            number("Request", &|rule| html! { (rule.request) }),
            number("Limit", &|rule| html! { (rule.limit) }),
            only_if(of_offer, text("Policy", &|rule| html! {
                @if let Some(policy) = &rule.policy { a href=(links::policy(namespace, policy)) { (policy) } }
            })),
            only_if(!of_offer, number("Weight", &|rule| html! { @if let Some(weight) = rule.weight { (weight) } })),
            text("Answered by", &|rule| html! {
                @let Provider { service, problem } = &rule.provider;
                @if let Some(service) = service { (service) }
                @if let Some(problem) = problem {
                    " " span class={ "state wrap " (if service.is_some() { "near" } else { "bad" }) } { (problem) }
                }
            }),
        ]))
    }
}
