//! Provides any rule, for tests. The costs and compliances are written in `CostProvider` and
//! `RuleProvider` objects, which are those of Turnbuckle's mock provider.

#![warn(missing_docs)]

mod pattern;

use std::sync::Arc;

use anyhow::Result;
use arc_swap::ArcSwap;
use kube::{Api, core::DeserializeGuard};
use regex::Regex;
use tautline_api::{CostProvider, Metadata, RuleProvider as RuleScript};
use tautline_core::TrustedNamespaces;
use tautline_runtime::{
    cluster::Cluster,
    tasks::{self, Tasks},
    watch::watch_list,
};
use tautline_sdk::{
    Compliance, CostAnswer, CostChanges, CostRequest, Evaluation, EvaluationRequest, ProviderError,
    RuleProvider, Server,
};

use crate::pattern::NodePattern;

const DEFAULT_COST: i64 = 1;

/// A rule provider that answers from scripts. A script applies to pods of its own namespace, or of
/// all namespaces if its own is trusted. Clones share their scripts.
#[derive(Clone, Debug, Default)]
pub struct Scripted {
    trusted: Arc<TrustedNamespaces>,
    costs: Arc<ArcSwap<Vec<CostScript>>>,
    compliances: Arc<ArcSwap<Vec<ComplianceScript>>>,
    changes: CostChanges,
}

#[derive(Debug)]
struct CostScript {
    namespace: String,
    rule: String,
    target: Regex,
    values: Vec<(NodePattern, i64)>,
}

#[derive(Debug)]
struct ComplianceScript {
    namespace: String,
    rule: String,
    targets: Vec<(String, Regex)>,
    value: Compliance,
    reason: String,
}

impl Scripted {
    /// Returns a provider without scripts. Later scripts of `trusted` namespaces apply to pods of
    /// all namespaces.
    pub fn trusting(trusted: TrustedNamespaces) -> Self {
        Self {
            trusted: Arc::new(trusted),
            ..Self::default()
        }
    }

    /// Replaces the scripts for costs. A script with a malformed pattern is skipped and logged.
    pub fn set_costs(&self, mut scripts: Vec<Arc<CostProvider>>) {
        scripts.sort_by_key(|s| order(s.spec.priority, &s.metadata));
        let compiled = scripts.iter().filter_map(|s| {
            let compile = || {
                let values = s.spec.values.iter();
                Ok(CostScript {
                    namespace: namespace(&s.metadata),
                    rule: s.spec.rule.clone(),
                    target: pattern::target(&s.spec.target)?,
                    values: values
                        .map(|v| Ok((NodePattern::new(&v.node)?, v.cost)))
                        .collect::<Result<_, _>>()?,
                })
            };
            valid("CostProvider", &s.metadata, compile())
        });
        self.costs.store(Arc::new(compiled.collect()));
        self.changes.changed_all();
    }

    /// Replaces the scripts for compliance. A script with a malformed pattern is skipped and
    /// logged.
    pub fn set_compliances(&self, mut scripts: Vec<Arc<RuleScript>>) {
        scripts.sort_by_key(|s| order(s.spec.priority, &s.metadata));
        let compiled = scripts.iter().filter_map(|s| {
            let compile = || {
                let targets = s.spec.targets.iter();
                Ok(ComplianceScript {
                    namespace: namespace(&s.metadata),
                    rule: s.spec.rule.clone(),
                    targets: targets
                        .map(|t| Ok((t.name.clone(), pattern::target(&t.reference)?)))
                        .collect::<Result<_, _>>()?,
                    value: s.spec.value,
                    reason: s.spec.reason.clone(),
                })
            };
            valid("RuleProvider", &s.metadata, compile())
        });
        self.compliances.store(Arc::new(compiled.collect()));
    }
}

fn order(priority: i64, meta: &Metadata) -> impl Ord + use<> {
    (
        std::cmp::Reverse(priority),
        meta.namespace.clone(),
        meta.name.clone(),
    )
}

fn namespace(meta: &Metadata) -> String {
    meta.namespace.as_deref().unwrap_or("default").to_owned()
}

fn valid<T>(kind: &str, meta: &Metadata, compiled: Result<T, regex::Error>) -> Option<T> {
    compiled
        .inspect_err(|error| {
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            let name = meta.name.as_deref().unwrap_or_default();
            tracing::warn!("{kind} {namespace}/{name} is ignored: {error}");
        })
        .ok()
}

impl RuleProvider for Scripted {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let scripts = self.costs.load();
        let source = pattern::whole(&request.source);
        let namespace = Some(request.source.namespace.as_str());
        let mut apply = scripts.iter().filter(|s| {
            s.rule == request.rule.name && self.trusted.allows(&s.namespace, namespace)
        });
        let mut answer = CostAnswer::default();
        if request.source.name.is_empty() && apply.clone().next().is_some() {
            // Scripts select pods by patterns of names, so the costs depend on the pod.
            answer.per_pod = true;
            return Ok(answer);
        }
        let script = apply.find(|s| s.target.is_match(&source));
        for node in request.eligible_nodes {
            let Some(script) = script else {
                answer.usable(node, DEFAULT_COST, "no CostProvider is about this pod");
                continue;
            };
            let value = script.values.iter().find(|(p, _)| p.matches(&node));
            match value {
                Some((_, cost @ 0..)) => answer.usable(node, *cost, ""),
                Some(_) => answer.unusable(node, "Refused", "the CostProvider says so", false),
                None => answer.unusable(node, "NotListed", "the CostProvider lacks it", false),
            }
        }
        Ok(answer)
    }

    fn changes(&self) -> Option<&CostChanges> {
        Some(&self.changes)
    }

    async fn evaluate(&self, request: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        let scripts = self.compliances.load();
        let found = scripts.iter().find(|s| {
            s.rule == request.rule.name
                && self.trusted.allows(&s.namespace, request.namespace())
                && s.targets.len() == request.targets.len()
                && s.targets.iter().all(|(name, pattern)| {
                    request
                        .targets
                        .get(name)
                        .is_some_and(|r| pattern.is_match(&pattern::whole(r)))
                })
        });
        Ok(match found {
            Some(script) => Evaluation {
                compliance: script.value,
                reason: script.reason.clone(),
            },
            None => Evaluation::compliant("no RuleProvider is about these targets"),
        })
    }
}

/// The configuration of the process.
#[derive(Debug)]
pub struct ProcessConfig {
    /// The server's ports, TLS and limits.
    pub server: tautline_sdk::Config,
    /// The namespaces whose scripts apply to pods of all namespaces.
    pub trusted: TrustedNamespaces,
}

/// Runs the provider until SIGTERM or Ctrl-C.
pub async fn run(cluster: Cluster, config: ProcessConfig) -> Result<()> {
    let (server, mut tasks) = (Server::bind(config.server).await?, Tasks::default());
    let provider = Scripted::trusting(config.trusted);
    let client = cluster.client();
    let costs = provider.clone();
    let api: Api<DeserializeGuard<CostProvider>> = Api::all(client.clone());
    watch_list(api, None, &server.readiness, &mut tasks, move |list| {
        costs.set_costs(list);
    });
    let compliances = provider.clone();
    let api: Api<DeserializeGuard<RuleScript>> = Api::all(client.clone());
    watch_list(api, None, &server.readiness, &mut tasks, move |list| {
        compliances.set_compliances(list);
    });
    tracing::info!(address = %server.address(), "rule provider listening");
    server.spawn(Arc::new(provider), &mut tasks)?;
    tasks.run(tasks::shutdown_signal()).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_sdk::{Reference, Rule};

    fn cost_script(name: &str, priority: i64, spec: serde_json::Value) -> Arc<CostProvider> {
        cost_script_in("default", name, priority, spec)
    }

    fn cost_script_in(
        namespace: &str,
        name: &str,
        priority: i64,
        mut spec: serde_json::Value,
    ) -> Arc<CostProvider> {
        spec["priority"] = priority.into();
        let object = serde_json::json!({
            "apiVersion": "constraint.ciena.com/v1", "kind": "CostProvider",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    async fn costs(provider: &Scripted, pod: &str) -> Vec<i64> {
        costs_in(provider, "default", pod).await
    }

    async fn costs_in(provider: &Scripted, namespace: &str, pod: &str) -> Vec<i64> {
        let request = CostRequest {
            source: Reference::pod(namespace, pod),
            rule: Rule {
                name: "latency".into(),
                ..Rule::default()
            },
            eligible_nodes: ["control-1", "edge-1", "far-1"].map(str::to_owned).to_vec(),
            ..CostRequest::default()
        };
        provider
            .endpoint_cost(request)
            .await
            .unwrap()
            .nodes()
            .iter()
            .map(|n| n.cost)
            .collect()
    }

    #[tokio::test]
    async fn first_match_by_priority_unlisted_negative_default_one() {
        let provider = Scripted::default();
        assert_eq!(costs(&provider, "hello-1").await, [1, 1, 1]);
        let values = |edge: i64| {
            serde_json::json!({"rule": "latency", "target": ".*:.*:.*:Pod:hello.*",
                "values": [{"node": ".*:control.*", "cost": 10}, {"node": "edge", "cost": edge}]})
        };
        provider.set_costs(vec![
            cost_script("low", 1, values(3)),
            cost_script("high", 9, values(4)),
            cost_script(
                "broken",
                99,
                serde_json::json!({"rule": "latency", "target": "(", "values": []}),
            ),
        ]);
        assert_eq!(costs(&provider, "hello-1").await, [10, 4, -1]);
        assert_eq!(costs(&provider, "other").await, [1, 1, 1]);
    }

    #[tokio::test]
    async fn scripts_reach_other_namespaces_only_from_trusted_ones() {
        let values = |cost: i64| serde_json::json!({"rule": "latency", "target": ".*", "values": [{"node": ".*", "cost": cost}]});
        let scripts = || {
            vec![
                cost_script_in("tenant", "mine", 9, values(-1)),
                cost_script_in("system", "all", 1, values(5)),
            ]
        };
        for (trusted, in_tenant, in_shop) in [
            (&["system"][..], [-1; 3], [5; 3]),
            (&[], [-1; 3], [1; 3]),
            (&["*"], [-1; 3], [-1; 3]),
        ] {
            let provider = Scripted::trusting(trusted.iter().copied().collect());
            provider.set_costs(scripts());
            assert_eq!(costs_in(&provider, "tenant", "p").await, in_tenant);
            assert_eq!(costs_in(&provider, "shop", "p").await, in_shop);
        }
    }

    #[tokio::test]
    async fn compliance_needs_every_target() {
        let provider = Scripted::default();
        let script = serde_json::json!({
            "apiVersion": "constraint.ciena.com/v1", "kind": "RuleProvider",
            "metadata": {"name": "r", "namespace": "ns"},
            "spec": {"rule": "latency", "value": "Violation", "reason": "far",
                     "targets": [{"name": "source", "reference": "Pod:hello-.*"}]},
        });
        provider.set_compliances(vec![Arc::new(serde_json::from_value(script).unwrap())]);
        let mut request = EvaluationRequest {
            rule: Rule {
                name: "latency".into(),
                ..Rule::default()
            },
            targets: [("source".to_owned(), Reference::pod("ns", "hello-1"))].into(),
            ..EvaluationRequest::default()
        };
        let evaluation = provider.evaluate(request.clone()).await.unwrap();
        assert_eq!(
            (evaluation.compliance, evaluation.reason.as_str()),
            (Compliance::Violation, "far")
        );
        let elsewhere = Reference::pod("other", "hello-1");
        let other = EvaluationRequest {
            targets: [("source".to_owned(), elsewhere)].into(),
            ..request.clone()
        };
        let evaluation = provider.evaluate(other.clone()).await.unwrap();
        assert_eq!(
            evaluation.compliance,
            Compliance::Compliant,
            "another namespace"
        );
        let trusting = Scripted {
            trusted: Arc::new(["ns"].into_iter().collect()),
            ..provider.clone()
        };
        let evaluation = trusting.evaluate(other).await.unwrap();
        assert_eq!(evaluation.compliance, Compliance::Violation);
        request
            .targets
            .insert("destination".into(), Reference::pod("ns", "db"));
        assert_eq!(
            provider.evaluate(request).await.unwrap().compliance,
            Compliance::Compliant
        );
    }
}
