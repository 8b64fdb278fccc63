//! Scheduling on loopback without a cluster: the real extender and the real providers, over
//! HTTP and gRPC, with the objects of manifests. This module plays kube-scheduler's part.

pub(crate) mod builtin;
mod claims;
mod extender;
mod not_considered;
mod other_clusters;
mod reserve;
mod rule_check;

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use serde_json::Value;
use tautline_api::{convert, manifest::Item};
use tautline_core::{
    index::{Kind, Object},
    model::{self, Service},
    node_filter::NodeFilter,
    providers::ExternalNames,
    trust::TrustedNamespaces,
};
use tautline_gpu_slice::{Config as GpuConfig, GpuSlice};
use tautline_latency::Latency;
use tautline_provider_client::ClientConfig;
use tautline_runtime::{cluster_store::ClusterStore, manifest_files, tasks::Tasks};
use tautline_scheduler_extender::explain::Record;
use tokio::time::{Instant, sleep};

use crate::manifests::admission::refusal;

pub(crate) use claims::of_templates;

use self::{
    builtin::{Builtins, NodeCosts},
    extender::Extender,
    not_considered::{Answer, UnreadKinds},
};

/// The longest wait for the joint plan of a pod's group.
const GROUP_DEADLINE: Duration = Duration::from_secs(10);
/// The time between two looks at whether the joint plan is there.
const GROUP_INTERVAL: Duration = Duration::from_millis(10);
/// The deadline of a provider's answer: longer than kube-scheduler's, as only a person waits.
const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// Places the pods of manifests with the real extender and providers on loopback.
pub struct LocalScheduler {
    store: ClusterStore,
    extender: Extender,
    /// The pods without a node: by priority as kube-scheduler takes them, then in the order of the
    /// manifests.
    pub pending: Vec<Pod>,
    trusted: TrustedNamespaces,
    builtins: Builtins,
    /// The Services of the manifests, with their addresses here.
    services: Vec<Service>,
    unread: UnreadKinds,
}

/// The result for one pod.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's node; absent if the pod stays pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// kube-scheduler's message, if the pod stays pending, or the API server's, if it refuses the
    /// pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The scheduling gates that the pod waits for; kube-scheduler ignores it until they are gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<String>,
    /// The pod's fields, and its peers in other clusters, that could change the answer and that the
    /// plan does not consider.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_considered: Vec<String>,
    /// The nodes that Kubernetes' own rules exclude, before any provider is called.
    pub misfits: Vec<UnschedulableNode>,
    /// The nodes that filter returned.
    #[serde(skip)]
    pub returned: Vec<String>,
    /// The extender's record; absent if no offer governs the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<Record>,
}

/// A node that Kubernetes' own rules exclude.
#[derive(Debug, Serialize)]
pub struct UnschedulableNode {
    /// The node's name.
    pub node: String,
    /// The first rule that excludes it, in kube-scheduler's words.
    pub reason: String,
}

impl LocalScheduler {
    /// Starts the extender and the built-in providers on free ports. Providers of
    /// `trusted` namespaces count for all others.
    ///
    /// # Errors
    /// An object cannot be used; the error names it.
    pub async fn start(items: &[Item], trusted: TrustedNamespaces) -> Result<Self> {
        Self::start_with(items, trusted, GpuConfig::default()).await
    }

    /// Starts as [`Self::start`] does, with settings of the provider of GPUs.
    pub(crate) async fn start_with(
        items: &[Item],
        trusted: TrustedNamespaces,
        gpu: GpuConfig,
    ) -> Result<Self> {
        let (store, mut tasks) = (ClusterStore::default(), Tasks::default());
        let items = &*claims::of_templates(items);
        let builtins = Builtins::start(items, &store, &trusted, gpu, &mut tasks).await?;

        manifest_files::implied_namespaces(items).for_each(|o| store.apply(o));
        store.apply(manifest_files::storage(items));
        let (mut pending, mut services) = (Vec::new(), Vec::new());
        for item in items {
            let volumes = manifest_files::pod_volumes(item);
            volumes.into_iter().for_each(|volumes| store.apply(volumes));
            let object = manifest_files::object(item).map_err(anyhow::Error::msg)?;
            match (item, object) {
                (Item::Service(api), Some(Object::Service(service))) => {
                    let service = builtins.redirect(api, service, items);
                    services.push(service.clone());
                    store.apply(Object::Service(service));
                }
                (Item::Pod(api), Some(Object::Pod(mut pod))) => {
                    pod.uid = claims::uid(api).into();
                    if pod.waits_for_node() {
                        pending.push((**api).clone());
                    }
                    store.apply(Object::Pod(pod));
                }
                (_, Some(object)) => store.apply(object),
                (_, None) => {}
            }
        }
        let empty_scopes = other_clusters::empty_scopes(&store.snapshot());
        empty_scopes.into_iter().for_each(|o| store.apply(o));
        pending.sort_by_key(|pod| Reverse(priority(pod)));
        let providers = ClientConfig {
            deadline: CALL_DEADLINE,
            // Services are redirected to this machine.
            external_names: ExternalNames::Any,
            trusted: trusted.clone(),
            shows_details: true,
            ..ClientConfig::default()
        };
        let extender = Extender::start(&store, providers, 2 * CALL_DEADLINE, tasks).await?;
        let local = Self {
            store,
            extender,
            pending,
            trusted,
            builtins,
            services,
            unread: UnreadKinds::new(items),
        };
        if items
            .iter()
            .any(|item| matches!(item, Item::ResourceSlice(_)))
        {
            for pod in local.store.snapshot().pods().filter(|pod| !pod.finished) {
                if let Some(node) = &pod.node {
                    local.allocate_claims(pod, node);
                }
            }
        }
        Ok(local)
    }

    /// Returns the objects of the manifests, with the pods that have been placed.
    pub fn store(&self) -> &ClusterStore {
        &self.store
    }

    /// Returns the URL of the extender's admin port, with `/explain`, `/metrics` and the rest.
    pub fn admin_url(&self) -> &str {
        self.extender.admin_url()
    }

    /// Returns the namespaces whose providers count for all others.
    pub(crate) fn trusted(&self) -> &TrustedNamespaces {
        &self.trusted
    }

    /// Returns the provider `gpu-slice`.
    pub(crate) fn gpu_slice(&self) -> &GpuSlice {
        &self.builtins.gpu_provider
    }

    /// Returns the provider `latency`.
    pub(crate) fn latency(&self) -> &Latency {
        &self.builtins.latency_provider
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        self.store.snapshot().node_count()
    }

    /// Runs a scheduling cycle for a pod, which gets the best node.
    ///
    /// # Errors
    /// The extender cannot be reached, or its answer is malformed.
    pub async fn place(&self, pod: &Pod) -> Result<Placement> {
        // Names decide ties, since kube-scheduler's own scores are missing here.
        let best = |scores: &[(String, i64)]| {
            let best = scores.iter().min_by_key(|(node, score)| (-score, node));
            best.map(|(node, _)| node.clone())
        };
        let original = pod;
        let mut pod = pod.clone();
        let mut placement = self.cycle(&mut pod, best).await?;
        let (namespace, name) = (&placement.namespace, &placement.pod);
        let last_round = self.extender.explain(namespace, name).await?;
        // The round may be of an earlier pod of this name.
        placement.round = last_round.filter(|round| Some(&round.uid) == pod.metadata.uid.as_ref());
        placement.not_considered = self.not_considered(original, &placement);
        Ok(placement)
    }

    fn not_considered(&self, pod: &Pod, placement: &Placement) -> Vec<String> {
        if !placement.gates.is_empty() || refusal(pod).is_some() {
            return Vec::new();
        }
        let rules = placement.round.iter().flat_map(|round| &round.rules);
        let answer = Answer {
            usable: placement.returned.len(),
            rules: rules.map(|rule| rule.rule.as_str()).collect(),
        };
        not_considered::fields(pod, &self.store.snapshot(), &self.unread, &answer)
    }

    /// Runs one scheduling cycle over HTTP, as kube-scheduler does: its own hard rules, filter,
    /// prioritize, reservation and bind. `choose` returns one of several usable nodes with their
    /// scores. The placement has no round yet.
    pub(crate) async fn cycle(
        &self,
        pod: &mut Pod,
        choose: impl FnOnce(&[(String, i64)]) -> Option<String>,
    ) -> Result<Placement> {
        pod.metadata.uid = Some(claims::uid(pod));
        let meta = &mut pod.metadata;
        let namespace = meta
            .namespace
            .get_or_insert_with(|| "default".into())
            .clone();
        let name = meta.name.clone().unwrap_or_default();
        let refused = refusal(pod).map(str::to_owned);
        let gates = match &refused {
            Some(_) => Vec::new(),
            None => scheduling_gates(pod),
        };
        let waits = || format!("waits for its scheduling gates: {}", gates.join(", "));
        if let Some(message) = refused.or_else(|| (!gates.is_empty()).then(waits)) {
            return Ok(Placement {
                namespace,
                pod: name,
                message: Some(message),
                gates,
                ..Placement::default()
            });
        }
        let known = convert::pod(pod);
        self.keep_volumes(pod);
        let json = serde_json::to_value(&*pod)?;
        let until = Instant::now() + GROUP_DEADLINE;
        let (misfits, usable, answer) = loop {
            let (names, misfits) = self.fitting_nodes(&known);
            let (usable, answer) = self.extender.filter(&json, &names).await?;
            if !usable.is_empty() || !is_being_planned(&answer) || Instant::now() > until {
                break (misfits, usable, answer);
            }
            sleep(GROUP_INTERVAL).await;
        };
        let node = match usable.as_slice() {
            [] => None,
            [only] => Some(only.clone()),
            several => {
                let scores = self.extender.prioritize(&json, several).await?;
                // An ungoverned pod has no scores.
                let scores: BTreeMap<String, i64> = scores.into_iter().collect();
                let score = |node: &String| scores.get(node).copied().unwrap_or(0);
                let scored = several.iter().map(|n| (n.clone(), score(n)));
                choose(&scored.collect::<Vec<_>>())
            }
        };
        if let Some(node) = &node {
            // The pod itself holds its place no more, since it is bound before the next one.
            self.store.end_holds(&namespace, [&*name]);
            let reserved = self.reserve(&known, node).await?;
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.extend(reserved);
            let mut bound = convert::pod(pod);
            bound.node = Some(node.as_str().into());
            self.store.apply(Object::Pod(bound));
        }
        Ok(Placement {
            namespace,
            pod: name,
            message: node.is_none().then(|| self.message(&misfits, &answer)),
            node,
            misfits,
            returned: usable,
            ..Placement::default()
        })
    }

    /// Returns the nodes that Kubernetes' own rules admit and the nodes that they exclude, sorted by
    /// name.
    fn fitting_nodes(&self, pod: &model::Pod) -> (Vec<String>, Vec<UnschedulableNode>) {
        let (mut names, mut misfits) = (Vec::new(), Vec::new());
        let snapshot = self.store.snapshot();
        let filter = NodeFilter::new(&snapshot, pod);
        for node in snapshot.nodes() {
            match filter.reason(node) {
                None => names.push(node.name.to_string()),
                Some(m) => misfits.push(UnschedulableNode {
                    node: node.name.to_string(),
                    reason: m.to_string(),
                }),
            }
        }
        names.sort();
        misfits.sort_by(|a, b| a.node.cmp(&b.node));
        (names, misfits)
    }

    /// Replaces the claims of an earlier pod of this name by those of `pod`.
    fn keep_volumes(&self, pod: &Pod) {
        let volumes = convert::pod_volumes(pod);
        let is_empty = volumes.claims.is_empty();
        let object = Object::PodVolumes(volumes);
        if is_empty {
            self.store.delete(Kind::PodVolumes, &object.key());
        } else {
            self.store.apply(object);
        }
    }

    fn message(&self, misfits: &[UnschedulableNode], answer: &Value) -> String {
        if self.node_count() == 0 {
            return "there are no nodes".to_owned();
        }
        let by_rules = ["failedNodes", "failedAndUnresolvableNodes"]
            .iter()
            .flat_map(|key| answer[key].as_object().into_iter().flatten())
            .map(|(_, reason)| reason.as_str().unwrap_or_default());
        let mut counts = BTreeMap::<&str, usize>::new();
        for reason in misfits.iter().map(|m| m.reason.as_str()).chain(by_rules) {
            *counts.entry(reason).or_default() += 1;
        }
        let parts: Vec<String> = counts.iter().map(|(r, n)| format!("{n} {r}")).collect();
        format!(
            "0/{} nodes are available: {}.",
            self.node_count(),
            parts.join(", ")
        )
    }

    /// Adds or removes the label that binds `rule` to a Service, as `kubectl label` does.
    pub fn relabel(&self, namespace: &str, service: &str, rule: &str, enabled: bool) {
        let snapshot = self.store.snapshot();
        if let Some(found) = snapshot.service(namespace, service) {
            let mut changed = (**found).clone();
            changed.rules.retain(|r| **r != *rule);
            if enabled {
                changed.rules.push(rule.into());
            }
            self.store.apply(Object::Service(changed));
        }
    }

    /// Gives the rules of `costs` these costs from now on, and all other rules their providers.
    pub(crate) fn set_costs(&self, costs: &BTreeMap<String, NodeCosts>) {
        self.builtins.fixed_costs.set(costs.clone());
        for service in &self.services {
            let mut service = service.clone();
            service.rules.retain(|rule| !costs.contains_key(&**rule));
            self.store.apply(Object::Service(service));
        }
        let snapshot = self.store.snapshot();
        let mut namespaces: Vec<_> = snapshot.offers().map(|e| &e.offer.namespace).collect();
        namespaces.dedup();
        for namespace in namespaces {
            let rules = costs.keys().map(|rule| rule.as_str().into()).collect();
            let service = Object::Service(self.builtins.fixed_service(namespace, rules));
            if costs.is_empty() {
                self.store.delete(Kind::Service, &service.key());
            } else {
                self.store.apply(service);
            }
        }
    }

    /// Stops the extender and the providers.
    pub async fn stop(self) {
        self.extender.stop().await;
    }
}

/// Returns whether filter's answer says that the pod's group is being planned.
fn is_being_planned(answer: &Value) -> bool {
    let reasons = answer["failedAndUnresolvableNodes"].as_object();
    let mut reasons = reasons.into_iter().flatten();
    reasons.any(|(_, reason)| reason == "group/Planning")
}

fn priority(pod: &Pod) -> i32 {
    let spec = pod.spec.as_ref();
    spec.and_then(|s| s.priority).unwrap_or_default()
}

fn scheduling_gates(pod: &Pod) -> Vec<String> {
    let gates = pod.spec.iter().flat_map(|s| &s.scheduling_gates);
    gates.flatten().map(|gate| gate.name.clone()).collect()
}
