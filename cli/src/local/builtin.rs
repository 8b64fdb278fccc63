//! Runs the built-in providers on loopback, behind the Services of the manifests.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context as _, Result};
use arc_swap::ArcSwap;
use k8s_openapi::{
    api::{
        core::v1::{ConfigMap, Service as ApiService},
        resource::v1::ResourceClaim,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::{Deserialize, Deserializer, de};
use tautline_api::manifest::Item;
use tautline_core::{
    model::{Service, ServicePort},
    trust::TrustedNamespaces,
};
use tautline_gpu_slice::{Config as GpuConfig, GpuSlice, dra};
use tautline_latency::{
    BANDWIDTH_TABLE_LABEL, Bandwidth, Latency, RoundTrip, TABLE_LABEL, tables_of,
};
use tautline_runtime::{cluster_store::ClusterStore, tasks::Tasks};
use tautline_scripted::Scripted;
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider, Server,
    testkit,
};

/// The annotation that names the built-in provider which replaces a Service of the manifests.
const BUILTIN_ANNOTATION: &str = "tautline.io/builtin";
const LATENCY_RULES: [&str; 3] = ["latency", "jitter", "bandwidth"];

pub(super) struct Builtins {
    pub(super) gpu_provider: GpuSlice,
    pub(super) latency_provider: Latency,
    gpu_slice: u16,
    latency: u16,
    scripted: u16,
    fixed: u16,
    pub(super) fixed_costs: FixedCosts,
}

/// Gives the provider of GPUs the objects that DRA drivers and kube-scheduler would write.
fn give_devices(gpu: &GpuSlice, items: &[Item]) -> Result<()> {
    let (mut classes, mut slices, mut claims) = (Vec::new(), Vec::new(), Vec::new());
    let named = |kind: &str, meta: &ObjectMeta| {
        let name = meta.name.as_deref().unwrap_or_default();
        match &meta.namespace {
            Some(namespace) => format!("{kind} {namespace}/{name}"),
            None => format!("{kind} {name}"),
        }
    };
    for item in items {
        match item {
            Item::DeviceClass(o) => classes.push(dra::device_class(o)),
            Item::ResourceSlice(o) => {
                let slice = dra::resource_slice(o);
                slices.push(slice.with_context(|| named("ResourceSlice", &o.metadata))?);
            }
            Item::ResourceClaimTemplate(o) => {
                let claim = ResourceClaim {
                    spec: o.spec.spec.clone(),
                    ..ResourceClaim::default()
                };
                let read = dra::resource_claim(&claim);
                read.with_context(|| named("ResourceClaimTemplate", &o.metadata))?;
            }
            Item::ResourceClaim(o) => {
                let claim = dra::resource_claim(o);
                claims.push(claim.with_context(|| named("ResourceClaim", &o.metadata))?);
            }
            _ => {}
        }
    }
    gpu.set_classes(classes);
    gpu.set_slices(slices);
    // A provider that knows claims waits for more claims, which are not written here.
    if !claims.is_empty() {
        gpu.set_claims(claims);
    }
    Ok(())
}

impl Builtins {
    pub(super) async fn start(
        items: &[Item],
        store: &ClusterStore,
        trusted: &TrustedNamespaces,
        gpu: GpuConfig,
        tasks: &mut Tasks,
    ) -> Result<Self> {
        let scripted = Scripted::trusting(trusted.clone());
        let latency = Latency::new(store.clone()).with_trusted(trusted.clone());
        scripted.set_costs(collect(items, |i| match i {
            Item::CostProvider(s) => Some(s),
            _ => None,
        }));
        scripted.set_compliances(collect(items, |i| match i {
            Item::RuleProvider(s) => Some(s),
            _ => None,
        }));
        let rtts = labelled_config_maps(items, TABLE_LABEL);
        latency.set_table(tables_of::<RoundTrip>(trusted.clone(), rtts));
        let bandwidths = labelled_config_maps(items, BANDWIDTH_TABLE_LABEL);
        latency.set_bandwidth_table(tables_of::<Bandwidth>(trusted.clone(), bandwidths));
        let fixed_costs = FixedCosts::default();
        let gpu = GpuSlice::new(store.clone(), gpu);
        give_devices(&gpu, items)?;
        Ok(Self {
            gpu_slice: serve(gpu.clone(), tasks).await?,
            latency: serve(latency.clone(), tasks).await?,
            gpu_provider: gpu,
            latency_provider: latency,
            scripted: serve(scripted, tasks).await?,
            fixed: serve(fixed_costs.clone(), tasks).await?,
            fixed_costs,
        })
    }

    /// Makes the Service of these rules, which leads to the fixed costs.
    pub(super) fn fixed_service(&self, namespace: &str, rules: Vec<Box<str>>) -> Service {
        let service = Service {
            namespace: namespace.into(),
            name: "costs-of-the-test".into(),
            rules,
            ..Service::default()
        };
        at_port(service, self.fixed)
    }

    /// Gives a Service of the manifests the address of a built-in provider: the provider that its
    /// annotation names, else the provider of its rule, else the scripted provider if a script has
    /// its rule. A Service on loopback is not changed; any other Service cannot be reached.
    pub(super) fn redirect(&self, api: &ApiService, service: Service, items: &[Item]) -> Service {
        let loopback = |host: &String| host == "localhost" || host.starts_with("127.");
        if service.external_name.as_ref().is_some_and(loopback) {
            return service;
        }
        let annotations = api.metadata.annotations.as_ref();
        let named = annotations.and_then(|all| all.get(BUILTIN_ANNOTATION));
        let has = |rule: &str| service.rules.iter().any(|r| **r == *rule);
        let scripted = items.iter().any(|item| match item {
            Item::CostProvider(s) => has(&s.spec.rule),
            Item::RuleProvider(s) => has(&s.spec.rule),
            _ => false,
        });
        let port = match named.map(String::as_str) {
            Some("gpu-slice") => self.gpu_slice,
            Some("latency") => self.latency,
            Some("scripted") => self.scripted,
            _ if has("gpu-slice") => self.gpu_slice,
            _ if LATENCY_RULES.iter().any(|rule| has(rule)) => self.latency,
            _ if scripted => self.scripted,
            _ => return service,
        };
        at_port(service, port)
    }

    /// Returns whether a Service leads to the provider of GPUs.
    pub(super) fn is_gpu_slice(&self, service: &Service) -> bool {
        has_port(service, self.gpu_slice)
    }

    /// Asks a provider of the kind that a Service leads to, without nodes. Returns `None` if the
    /// Service leads to another kind.
    pub(super) async fn ask(
        &self,
        service: &Service,
        request: CostRequest,
    ) -> Result<Option<CostAnswer>, ProviderError> {
        // These are other providers than those that plan, which learn from requests.
        let store = ClusterStore::default();
        let answer = if has_port(service, self.gpu_slice) {
            let provider = GpuSlice::new(store, GpuConfig::default());
            provider.endpoint_cost(request).await
        } else if has_port(service, self.latency) {
            Latency::new(store).endpoint_cost(request).await
        } else {
            return Ok(None);
        };
        answer.map(Some)
    }
}

const LOOPBACK: &str = "127.0.0.1";

fn has_port(service: &Service, port: u16) -> bool {
    let is_here = service.external_name.as_deref() == Some(LOOPBACK);
    is_here && matches!(service.ports.as_slice(), [only] if only.port == port)
}

fn at_port(service: Service, port: u16) -> Service {
    Service {
        external_name: Some(LOOPBACK.into()),
        ports: vec![ServicePort {
            name: "ruleprovider".into(),
            port,
        }],
        tls_required: false,
        ..service
    }
}

async fn serve(provider: impl RuleProvider, tasks: &mut Tasks) -> Result<u16> {
    let server = Server::bind(testkit::loopback()).await?;
    let port = server.address().port();
    server.spawn(Arc::new(provider), tasks)?;
    Ok(port)
}

fn collect<T: Clone>(items: &[Item], pick: impl Fn(&Item) -> Option<&Box<T>>) -> Vec<Arc<T>> {
    let picked = items.iter().filter_map(pick);
    picked.map(|o| Arc::new((**o).clone())).collect()
}

fn labelled_config_maps<'a>(
    items: &'a [Item],
    label: &'static str,
) -> impl Iterator<Item = &'a ConfigMap> {
    items.iter().filter_map(move |item| {
        let Item::ConfigMap(map) = item else {
            return None;
        };
        is_labelled(map, label).then_some(&**map)
    })
}

pub(crate) fn is_labelled(map: &ConfigMap, label: &str) -> bool {
    let labels = map.metadata.labels.as_ref();
    labels
        .and_then(|l| l.get(label))
        .is_some_and(|v| v == "enabled")
}

/// The costs of one rule by node.
pub(crate) type NodeCosts = BTreeMap<String, FixedCost>;

/// The cost of one node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "must be a whole number, or a reason code of letters, such as OverLimit"
)]
pub(crate) enum FixedCost {
    /// The cost. A lower cost is better; with a negative cost the node is not usable.
    Cost(i64),
    /// The node is not usable, with this reason code.
    Refused(#[serde(deserialize_with = "code")] String),
}

fn code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let code = String::deserialize(deserializer)?;
    let is_code = code.len() <= 40
        && code.starts_with(|c: char| c.is_ascii_uppercase())
        && code.chars().all(|c| c.is_ascii_alphabetic());
    is_code
        .then_some(code)
        .ok_or_else(|| de::Error::custom("not a code"))
}

/// The costs by rule and node, the same for every pod. A node without an entry has no cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct FixedCosts(Arc<ArcSwap<BTreeMap<String, NodeCosts>>>);

impl FixedCosts {
    pub(super) fn set(&self, costs: BTreeMap<String, NodeCosts>) {
        self.0.store(Arc::new(costs));
    }
}

/// Returns the cost of the rule's request. Costs of `latency`, `jitter` and `bandwidth` have these
/// rules' units, so their request counts; other rules have `None`.
async fn request_cost(request: &CostRequest) -> Option<i64> {
    if !LATENCY_RULES.contains(&request.rule.name.as_str()) {
        return None;
    }
    let of_no_node = CostRequest {
        source: request.source.clone(),
        rule: request.rule.clone(),
        ..CostRequest::default()
    };
    let latency = Latency::new(ClusterStore::default());
    latency.endpoint_cost(of_no_node).await.ok()?.request_cost
}

impl RuleProvider for FixedCosts {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let costs = self.0.load();
        let mut answer = CostAnswer::default();
        let Some(nodes) = costs.get(&request.rule.name) else {
            return Ok(answer);
        };
        answer.request_cost = request_cost(&request).await;
        for node in &request.eligible_nodes {
            match nodes.get(node) {
                Some(FixedCost::Cost(cost @ 0..)) => answer.usable(node, *cost, ""),
                Some(FixedCost::Cost(_)) => answer.unusable(node, "Refused", "", false),
                Some(FixedCost::Refused(code)) => answer.unusable(node, code, "", false),
                None => {}
            }
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::compliant("tests do not evaluate"))
    }
}
