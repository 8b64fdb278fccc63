//! One evaluation: every rule of a binding's policies, asked at its provider.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use tautline_api::constraint::{self as api, PolicyDetail, RuleDetail};
use tautline_core::{
    Compliance, Snapshot,
    model::{Offer, Rule, Service},
    planning::code,
    reference::Reference,
    text,
};
use tautline_proto::ruleprovider as wire;
use tautline_provider_client::{ProviderClient, planning_round::provider_name};

use crate::{known::Known, metrics::Metrics};

/// Reasons come from providers and go into every status: no longer than this.
const LONGEST_REASON_CHARS: usize = 512;

/// What is to be asked for a binding.
#[derive(Clone, Debug)]
pub(crate) struct Questions {
    policies: Vec<PolicyQuestion>,
    /// Who will be asked, each once.
    pub providers: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
struct PolicyQuestion {
    policy: Arc<str>,
    /// `None`: there is no such policy.
    rules: Option<Vec<(Rule, Option<Arc<Service>>)>>,
}

/// What an evaluation found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub compliance: Compliance,
    /// The reason of the first rule that is as bad as the whole.
    pub first_reason: String,
    pub details: Vec<PolicyDetail>,
}

/// What the offer's policies ask, and whom.
pub(crate) fn questions(
    snapshot: &Snapshot,
    discovery: &ProviderClient,
    offer: &Offer,
) -> Questions {
    let mut providers = Vec::new();
    let policies = offer
        .policies
        .iter()
        .map(|name| PolicyQuestion {
            policy: Arc::clone(name),
            rules: snapshot.policy(&offer.namespace, name).map(|policy| {
                let rule = |rule: &Rule| {
                    let service = discovery.provider(snapshot, &rule.name, &offer.namespace);
                    providers.extend(service.map(|s| provider_name(s)));
                    (rule.clone(), service.cloned())
                };
                policy.rules.iter().map(rule).collect()
            }),
        })
        .collect();
    providers.sort_unstable();
    providers.dedup();
    Questions {
        policies,
        providers,
    }
}

/// Asks everything at once; each call has its deadline.
pub(crate) async fn run(
    discovery: &ProviderClient,
    snapshot: &Snapshot,
    metrics: &Metrics,
    binding: &Known,
    questions: &Questions,
) -> Found {
    let policies = questions.policies.iter().map(async |policy| {
        let Some(rules) = &policy.rules else {
            let reason = format!(
                "{}: ConstraintPolicy {}/{} does not exist",
                code::POLICY_MISSING,
                binding.namespace,
                policy.policy
            );
            return PolicyDetail {
                policy: policy.policy.to_string(),
                compliance: api::Compliance::Error,
                reason,
                rule_details: Vec::new(),
            };
        };
        let rules = rules.iter().map(async |(rule, service)| {
            ask(
                discovery,
                snapshot,
                metrics,
                binding,
                rule,
                service.as_ref(),
            )
            .await
        });
        policy_detail(&policy.policy, join_all(rules).await)
    });
    found(join_all(policies).await)
}

async fn ask(
    discovery: &ProviderClient,
    snapshot: &Snapshot,
    metrics: &Metrics,
    binding: &Known,
    rule: &Rule,
    service: Option<&Arc<Service>>,
) -> RuleDetail {
    let mut detail = RuleDetail {
        rule: rule.name.to_string(),
        compliance: api::Compliance::Error,
        ..RuleDetail::default()
    };
    let Some(service) = service else {
        detail.reason = format!(
            "{}: {}",
            code::NO_PROVIDER,
            discovery.missing_provider_message(snapshot, &rule.name, &binding.namespace)
        );
        metrics.evaluated(&rule.name, "", code::NO_PROVIDER, Duration::ZERO);
        return detail;
    };
    detail.provider = provider_name(service).to_string();
    let start = Instant::now();
    let answer = discovery
        .evaluate(snapshot, service, request(snapshot, binding, rule))
        .await;
    let (compliance, reason) = match answer {
        Ok(answer) => match wire::evaluate_response::ComplianceState::try_from(answer.compliance) {
            Ok(said) => (compliance_of(said), answer.reason),
            Err(_) => (
                Compliance::Error,
                format!("{}: compliance {}", code::BAD_ANSWER, answer.compliance),
            ),
        },
        Err(error) => (Compliance::Error, format!("{}: {error}", error.code())),
    };
    metrics.evaluated(
        &rule.name,
        &detail.provider,
        compliance.as_str(),
        start.elapsed(),
    );
    detail.compliance = to_api(compliance);
    detail.reason = text::sanitize(&reason, LONGEST_REASON_CHARS).into_owned();
    detail
}

fn request(snapshot: &Snapshot, binding: &Known, rule: &Rule) -> wire::EvaluateRequest {
    let targets: BTreeMap<String, wire::Target> = binding
        .targets
        .iter()
        .map(|(name, r)| {
            let target = wire::Target {
                cluster: r.cluster.clone(),
                namespace: r.namespace.clone(),
                api_version: r.api_version.clone(),
                kind: r.kind.clone(),
                name: r.name.clone(),
            };
            (name.to_string(), target)
        })
        .collect();
    let node = |pod: &Reference| {
        let pod = snapshot.pod(&pod.namespace, &pod.name);
        pod.and_then(|p| p.node.as_deref())
            .unwrap_or_default()
            .to_owned()
    };
    let ours = |r: &Reference| r.kind == "Pod" && r.cluster.is_empty();
    let pods = binding.targets.iter().filter(|(_, r)| ours(r));
    wire::EvaluateRequest {
        targets,
        target_nodes: pods.map(|(name, r)| (name.to_string(), node(r))).collect(),
        rule: Some(wire::PolicyRule {
            name: rule.name.to_string(),
            request: rule.request.clone(),
            limit: rule.limit.clone(),
        }),
    }
}

fn policy_detail(policy: &str, rules: Vec<RuleDetail>) -> PolicyDetail {
    let compliance = Compliance::aggregate(rules.iter().map(|r| of_api(r.compliance)));
    let worst = rules.iter().find(|r| of_api(r.compliance) == compliance);
    PolicyDetail {
        policy: policy.to_owned(),
        compliance: to_api(compliance),
        reason: worst.map(|r| r.reason.clone()).unwrap_or_default(),
        rule_details: rules,
    }
}

fn found(details: Vec<PolicyDetail>) -> Found {
    let compliance = Compliance::aggregate(details.iter().map(|d| of_api(d.compliance)));
    let worst = details.iter().find(|d| of_api(d.compliance) == compliance);
    let first_reason = match worst {
        Some(worst) => worst.reason.clone(),
        None => "NoPolicies: the offer names no policy".to_owned(),
    };
    Found {
        compliance,
        first_reason,
        details,
    }
}

fn compliance_of(said: wire::evaluate_response::ComplianceState) -> Compliance {
    use wire::evaluate_response::ComplianceState as Said;
    match said {
        Said::Pending => Compliance::Pending,
        Said::Compliant => Compliance::Compliant,
        Said::Limit => Compliance::Limit,
        Said::Violation => Compliance::Violation,
        Said::Error => Compliance::Error,
    }
}

pub(crate) fn to_api(compliance: Compliance) -> api::Compliance {
    match compliance {
        Compliance::Pending => api::Compliance::Pending,
        Compliance::Compliant => api::Compliance::Compliant,
        Compliance::Limit => api::Compliance::Limit,
        Compliance::Violation => api::Compliance::Violation,
        Compliance::Error => api::Compliance::Error,
    }
}

pub(crate) fn of_api(compliance: api::Compliance) -> Compliance {
    match compliance {
        api::Compliance::Pending => Compliance::Pending,
        api::Compliance::Compliant => Compliance::Compliant,
        api::Compliance::Limit => Compliance::Limit,
        api::Compliance::Violation => Compliance::Violation,
        api::Compliance::Error => Compliance::Error,
    }
}
