//! Runs a trace through the real extender and the real gpu-slice provider on loopback. In place of
//! kube-scheduler this module picks one of the nodes with the best score, and checks that the cards
//! which the provider reserves are free.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tautline_core::trust::TrustedNamespaces;
use tautline_gpu_placement::{
    CARD_MILLI, RequestDistribution,
    device_annotation::{self, CardShare},
    names::DEVICES_ANNOTATION,
};
use tautline_gpu_simulator::{
    Arrivals, Contender, Experiment, RunResult, Workload,
    run::{Cluster, RunRecord},
    ties::TieBreaker,
};
use tautline_gpu_slice::{Config, NodeOrder};

use super::trace_objects;
use crate::local::LocalScheduler;

pub(super) async fn run(experiment: &Experiment) -> Result<Vec<RunResult>> {
    let trace = &experiment.trace;
    let mut outcomes = Vec::new();
    for (workload, orders) in &experiment.workloads {
        let shapes = workload
            .pods
            .iter()
            .map(|p| &workload.shapes[p.shape as usize]);
        let classes = RequestDistribution::from_shapes(shapes).classes();
        for order in orders {
            for policy in &experiment.policies {
                let (start, arrivals) = (Instant::now(), &order.arrivals);
                let config = Config {
                    policy: policy.policy(),
                    order: NodeOrder::Named,
                    classes: Some(classes.clone()),
                    ..Config::default()
                };
                let items = trace_objects::items(trace, workload, arrivals)?;
                let trusted = TrustedNamespaces::default();
                let local = LocalScheduler::start_with(&items, trusted, config).await?;
                let record = arrive(&local, experiment, workload, arrivals, *policy).await;
                local.stop().await;
                outcomes.push(RunResult::from_record(
                    trace,
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

async fn arrive(
    local: &LocalScheduler,
    experiment: &Experiment,
    workload: &Workload,
    order: &Arrivals,
    policy: Contender,
) -> Result<RunRecord> {
    // A second inventory, to check that the provider's cards are free.
    let mut cluster = Cluster::new(&experiment.trace, workload, order, policy);
    let mut chooser = TieBreaker::new(experiment.ties, order.seed);
    let mut record = RunRecord::default();
    for (number, pod) in order.pods.iter().enumerate() {
        let shape = workload.shape_of(*pod);
        let mut pod = trace_objects::pod(number, shape, workload)?;
        let choose = |scores: &[_]| best(scores, &mut chooser);
        let placement = local.cycle(&mut pod, choose).await?;
        if let Some(node) = &placement.node {
            let annotations = pod.metadata.annotations.as_ref();
            let text = annotations.and_then(|all| all.get(DEVICES_ANNOTATION));
            let card = text.map_or(Ok(Vec::new()), |text| cards(text))?;
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
        record.arrival(shape, placement.node.is_some(), &cluster);
    }
    Ok(record)
}

/// Returns a node with the best score, which `chooser` takes from the equal ones by their names.
fn best(scores: &[(String, i64)], chooser: &mut TieBreaker) -> Option<String> {
    let highest = scores.iter().map(|(_, score)| *score).max()?;
    let equals = scores.iter().filter(|(_, score)| *score == highest);
    let mut names: Vec<&String> = equals.map(|(name, _)| name).collect();
    names.sort_unstable();
    let chosen = (1..).zip(names).reduce(|chosen, (nth, name)| {
        if chooser.replaces(nth) {
            (nth, name)
        } else {
            chosen
        }
    });
    chosen.map(|(_, name)| name.clone())
}

/// Returns the cards of an annotation, with the pod's thousandths of each.
fn cards(annotation: &str) -> Result<Vec<(u16, u16)>> {
    let parts = device_annotation::parse(annotation, CARD_MILLI)?;
    let part = |p: CardShare| Ok((p.card.parse()?, p.milli));
    parts.into_iter().map(part).collect()
}
