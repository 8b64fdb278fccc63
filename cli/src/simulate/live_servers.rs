//! Runs a trace through the real extender and the real gpu-slice provider on loopback. In place of
//! kube-scheduler this module calls filter and prioritize for the nodes that fit, picks one of the
//! best score, lets the provider reserve the cards, and binds the pod.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tautline_api::convert;
use tautline_core::{
    constraints::pod_constraints,
    index::{Kind, Object},
    model::{Pod, Service, ServicePort},
    node_filter::NodeFilter,
    nodes::NodeSet,
    selector::Labels,
};
use tautline_gpu_placement::{
    CARD_MILLI, RequestDistribution, device_annotation, policy::PolicyName,
};
use tautline_gpu_simulator::{
    Arrivals, Experiment, RunResult, Trace, Workload,
    run::{Cluster, RunRecord},
    ties::TieBreaker,
};
use tautline_gpu_slice::{Config as GpuConfig, GpuSlice, NodeOrder};
use tautline_provider_client::{ClientConfig, Metrics, PlanningQuestion, ProviderClient};
use tautline_runtime::{cluster_store::ClusterStore, tasks::Tasks};
use tautline_sdk::{Server, testkit};

use super::trace_objects;
use crate::local::Extender;

/// The deadline of a call, far more than an answer takes: the simulation measures placement, not
/// time.
const CALL_DEADLINE: Duration = Duration::from_secs(30);

pub(super) async fn run(experiment: &Experiment, tell: impl Fn(u64)) -> Result<Vec<RunResult>> {
    let mut outcomes = Vec::new();
    for (workload, orders) in &experiment.workloads {
        for order in orders {
            for policy in &experiment.policies {
                let (start, arrivals) = (Instant::now(), &order.arrivals);
                let servers =
                    LiveServers::start(&experiment.trace, workload, arrivals, *policy).await?;
                let chooser = TieBreaker::new(experiment.ties, arrivals.seed);
                let arriving = servers.arrive(experiment, workload, arrivals, chooser, &tell);
                let record = arriving.await;
                servers.extender.stop().await;
                outcomes.push(RunResult::from_record(
                    &experiment.trace,
                    workload,
                    arrivals.seed,
                    *policy,
                    &record?,
                    start.elapsed().as_secs_f64(),
                ));
            }
        }
    }
    Ok(outcomes)
}

struct LiveServers {
    store: ClusterStore,
    extender: Extender,
    provider_client: ProviderClient,
    policy: PolicyName,
}

impl LiveServers {
    async fn start(
        trace: &Trace,
        workload: &Workload,
        order: &Arrivals,
        policy: PolicyName,
    ) -> Result<Self> {
        let (store, mut tasks) = (ClusterStore::default(), Tasks::default());
        let shapes = workload
            .pods
            .iter()
            .map(|p| &workload.shapes[p.shape as usize]);
        let provider = Arc::new(GpuSlice::new(
            store.clone(),
            GpuConfig {
                policy,
                order: NodeOrder::Named,
                classes: Some(RequestDistribution::from_shapes(shapes).classes()),
                ..GpuConfig::default()
            },
        ));
        let server = Server::bind(testkit::loopback()).await?;
        let service = Service {
            namespace: trace_objects::NAMESPACE.into(),
            name: "gpu-slice".into(),
            rules: vec!["gpu-slice".into()],
            external_name: Some("127.0.0.1".into()),
            ports: vec![ServicePort {
                name: "ruleprovider".into(),
                port: server.address().port(),
            }],
            allocator: true,
            ..Service::default()
        };
        server.spawn_with_allocator(Arc::clone(&provider), provider, &mut tasks)?;
        store.apply(Object::Service(service));
        store.reset(Kind::Node, trace_objects::nodes(trace, order)?);
        for object in trace_objects::policies(workload)? {
            store.apply(object);
        }
        let providers = ClientConfig {
            deadline: CALL_DEADLINE,
            ..ClientConfig::single_tenant()
        };
        Ok(Self {
            extender: Extender::start(&store, providers.clone(), CALL_DEADLINE, tasks).await?,
            provider_client: ProviderClient::new(providers, Metrics::default())?,
            store,
            policy,
        })
    }

    async fn arrive(
        &self,
        experiment: &Experiment,
        workload: &Workload,
        order: &Arrivals,
        mut chooser: TieBreaker,
        tell: &impl Fn(u64),
    ) -> Result<RunRecord> {
        // A second inventory, to check that the provider's cards are free.
        let mut cluster = Cluster::new(&experiment.trace, workload, order, self.policy);
        let mut record = RunRecord::default();
        for (number, pod) in order.pods.iter().enumerate() {
            let shape = workload.shape_of(*pod);
            let json = trace_objects::pod(number, shape, workload);
            let node = self.schedule(&json, &mut chooser).await?;
            if let Some(node) = &node {
                let card = self.bind(&json, node).await?;
                let index = trace_objects::index(node).context("a node of another name")?;
                let placed = cluster
                    .place_on(shape, index, card.first().map(|c| c.0))
                    .map(|h| h.grant)
                    .unwrap_or_default();
                ensure!(
                    placed == card,
                    "arrival {number}: node {node} cannot give {card:?} to {shape:?}"
                );
            }
            record.arrival(shape, node.is_some(), &cluster);
            tell(1);
        }
        Ok(record)
    }

    /// Runs one scheduling cycle; returns `None` if no node is usable.
    async fn schedule(&self, json: &Value, chooser: &mut TieBreaker) -> Result<Option<String>> {
        let pod = core(json)?;
        let mut names: Vec<String> = {
            let snapshot = self.store.snapshot();
            let filter = NodeFilter::new(&snapshot, &pod);
            let fitting = snapshot.nodes().filter(|n| filter.reason(n).is_none());
            fitting.map(|n| n.name.to_string()).collect()
        };
        names.sort_unstable();
        let (mut usable, _) = self.extender.filter(json, &names).await?;
        usable.sort_unstable();
        if usable.len() < 2 {
            return Ok(usable.pop());
        }
        let mut best: Option<(String, i64)> = None;
        let mut equals = 1;
        for (host, score) in self.extender.prioritize(json, &usable).await? {
            match &best {
                Some((_, highest)) if *highest > score => {}
                Some((_, highest)) if *highest == score => {
                    equals += 1;
                    if chooser.replaces(equals) {
                        best = Some((host, score));
                    }
                }
                _ => (best, equals) = (Some((host, score)), 1),
            }
        }
        Ok(best.map(|(host, _)| host))
    }

    /// Reserves the cards, binds the pod and confirms; returns the cards, with the pod's
    /// thousandths of each.
    async fn bind(&self, json: &Value, node: &str) -> Result<Vec<(u16, u16)>> {
        let mut pod = core(json)?;
        let snapshot = self.store.snapshot();
        let question = PlanningQuestion::for_pod(&pod, NodeSet::default());
        let constraints = pod_constraints(&snapshot, &question.subject);
        let held = self
            .provider_client
            .reserve(&snapshot, &constraints, &question, node)
            .await?;
        let annotations = held.iter().flat_map(|r| &r.annotations);
        pod.annotations = annotations.collect::<Labels>();
        let text = pod
            .annotations
            .get(tautline_gpu_placement::names::DEVICES_ANNOTATION)
            .map(str::to_owned);
        pod.node = Some(node.into());
        self.store.apply(Object::Pod(pod));
        self.provider_client.confirm(&snapshot, &held).await;
        let parts = text
            .map(|t| device_annotation::parse(&t, CARD_MILLI))
            .transpose()?;
        let part = |p: device_annotation::CardShare| Ok((p.card.parse()?, p.milli));
        parts.unwrap_or_default().into_iter().map(part).collect()
    }
}

/// Converts a pod to the form of the index.
fn core(json: &Value) -> Result<Pod> {
    let pod = serde_json::from_value(json.clone()).context("a pod of the trace")?;
    Ok(convert::pod(&pod))
}
