mod text;

use std::{
    collections::{BTreeMap, HashMap},
    process::ExitCode,
};

use anyhow::Result;
use serde::Serialize;
use tautline_gpu_placement::{
    CARD, NodeCapacity, PlannedClasses, RequestClass, SharingMode, inventory::CardPool,
    planned_classes::PlannedClass,
};
use tautline_gpu_slice::{
    Config, Inspection,
    inspection::{CountedRequest, NodeGpus},
};

use super::{
    format,
    source::SourceArgs,
    uses::{UseArgs, Uses},
};
use crate::output::{self, Output};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    uses: UseArgs,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    /// Nodes whose cards are known one by one.
    nodes_with_cards: usize,
    idle_milli: i64,
    /// The idle GPU that the next request is expected not to be able to use;
    /// absent while no request is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    fragmented_milli: Option<i64>,
    classes: Vec<Class>,
    products: Vec<Product>,
    /// Absent: no agent reports what is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    given: Option<Given>,
    counted: Counted,
}

/// Parts of cards that pods have, on nodes whose agents report their use.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    milli: i64,
    /// The parts that are hardly used at this moment.
    idle_milli: i64,
    /// The pods that have them, the largest parts first.
    idle_pods: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Class {
    cpu_milli: i64,
    /// Thousandths of each card; 1000: whole ones.
    card_milli: u16,
    cards: u16,
    lane: String,
    models: Vec<String>,
    /// The part of all requests, 0 to 1.
    share: f64,
    pods: Vec<String>,
    /// The number of such requests that still fit if no others come.
    still_fit: i64,
    /// Idle GPU that it cannot use.
    unusable_milli: i64,
    nodes: NodeCounts,
    #[serde(skip)]
    text: String,
}

/// The number of nodes that a class can run on, and of others by reason.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeCounts {
    runs: usize,
    other_lane: usize,
    no_such_model: usize,
    gpu_short: usize,
    cpu_short: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Product {
    product: String,
    lane: String,
    nodes: usize,
    cards: usize,
    idle_milli: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    fragmented_milli: Option<i64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Counted {
    pods: usize,
    /// Waiting pods whose request is only in a rule of an offer.
    pods_by_rule: usize,
    /// Pods that request GPUs of which only the number is known.
    pods_not_counted: Vec<String>,
    classes: usize,
    /// Too rare to plan for.
    classes_left_out: usize,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let source = args.source.read(None).await?;
    let inspection = Inspection::new(source.snapshot, Config::default());
    let uses = args.uses.read(&args.source, &inspection).await;
    let report = Report::new(&inspection, &uses);
    if report.nodes_with_cards == 0 {
        let nodes = inspection.snapshot().node_count();
        note!("no node has cards that are known one by one, of {nodes}");
    }
    output::print(args.output, &report, Report::text)?;
    Ok(ExitCode::SUCCESS)
}

impl Report {
    fn new(inspection: &Inspection, uses: &Uses) -> Self {
        let types = inspection.types();
        let all = inspection.nodes();
        let with: Vec<&NodeGpus<'_>> = all.iter().filter(|n| !n.capacities.is_empty()).collect();
        let rooms = || with.iter().flat_map(|n| &n.capacities);
        let requests = inspection.requests();
        let mut pods: HashMap<RequestClass, Vec<String>> = HashMap::new();
        for request in &requests {
            let of = pods
                .entry(RequestClass::of_shape(&request.shape))
                .or_default();
            of.push(request.pod.clone());
        }
        let classes = inspection.classes().iter().zip(types.iter());
        let classes = classes.map(|((class, _), of)| {
            let pods = pods.remove(class).unwrap_or_default();
            Class::of(class, of, pods, &with)
        });
        let fragmented: f64 = rooms().map(|r| types.fragmented_milli(r)).sum();
        let known = !types.is_empty();
        Self {
            nodes_with_cards: with.len(),
            idle_milli: rooms().map(|r| r.idle_milli()).sum(),
            fragmented_milli: known.then_some(fragmented.round() as i64),
            classes: classes.collect(),
            products: products(&with, known.then_some(&types)),
            given: Given::of(&with, uses),
            counted: Counted::of(inspection, &requests),
        }
    }
}

impl Class {
    fn of(
        class: &RequestClass,
        of: &PlannedClass,
        pods: Vec<String>,
        nodes: &[&NodeGpus<'_>],
    ) -> Self {
        let mut verdicts = NodeCounts::default();
        let (mut still_fit, mut unusable_milli) = (0, 0);
        for node in nodes {
            let pools = || node.inventory.pools.iter().zip(&node.capacities);
            let best = pools()
                .map(|(pool, room)| ClassFit::of(class, of, pool, room))
                .min();
            *verdicts.of(best.unwrap_or(ClassFit::OtherLane)) += 1;
            let copies = pools().filter(|(_, room)| of.may_run_on(room.kind()));
            let copies = copies.filter_map(|(_, room)| room.max_copies(&class.shape()));
            still_fit += copies.sum::<i64>().min(by_cpu(class, node));
            unusable_milli += pools()
                .map(|(_, room)| of.unusable_milli(room))
                .sum::<i64>();
        }
        Self {
            cpu_milli: class.cpu_milli,
            card_milli: class.milli,
            cards: class.cards,
            lane: format::sharing_mode(class.mode),
            models: class.models.iter().map(|m| m.to_string()).collect(),
            share: (of.probability * 1e4).round() / 1e4,
            pods,
            still_fit,
            unusable_milli,
            nodes: verdicts,
            text: format::class(class),
        }
    }
}

/// Two pools of a node share its CPU.
fn by_cpu(class: &RequestClass, node: &NodeGpus<'_>) -> i64 {
    match class.cpu_milli {
        0 => i64::MAX,
        each => node.inventory.cpu_milli / each,
    }
}

/// The fit of a class on a pool, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ClassFit {
    Runs,
    CpuShort,
    GpuShort,
    NoSuchModel,
    OtherLane,
}

impl ClassFit {
    fn of(class: &RequestClass, of: &PlannedClass, pool: &CardPool, room: &NodeCapacity) -> Self {
        let enough = room.cards().iter().filter(|c| **c >= class.milli).count();
        match of {
            _ if PlannedClasses::runs_on(of, room) => Self::Runs,
            _ if class.mode != pool.kind.mode => Self::OtherLane,
            _ if !of.may_run_on(room.kind()) => Self::NoSuchModel,
            _ if enough < usize::from(class.cards) => Self::GpuShort,
            _ => Self::CpuShort,
        }
    }
}

impl NodeCounts {
    fn of(&mut self, why: ClassFit) -> &mut usize {
        match why {
            ClassFit::Runs => &mut self.runs,
            ClassFit::CpuShort => &mut self.cpu_short,
            ClassFit::GpuShort => &mut self.gpu_short,
            ClassFit::NoSuchModel => &mut self.no_such_model,
            ClassFit::OtherLane => &mut self.other_lane,
        }
    }
}

fn products(nodes: &[&NodeGpus<'_>], types: Option<&PlannedClasses>) -> Vec<Product> {
    let mut all: BTreeMap<(&str, SharingMode), Vec<&NodeCapacity>> = BTreeMap::new();
    for node in nodes {
        for (pool, room) in node.inventory.pools.iter().zip(&node.capacities) {
            let of = all.entry((&pool.kind.product, pool.kind.mode));
            of.or_default().push(room);
        }
    }
    let product = |((product, lane), rooms): (_, Vec<&NodeCapacity>)| Product {
        product: format::product(product).to_owned(),
        lane: format::sharing_mode(lane),
        nodes: rooms.len(),
        cards: rooms.iter().map(|r| r.cards().len()).sum(),
        idle_milli: rooms.iter().map(|r| r.idle_milli()).sum(),
        fragmented_milli: types.map(|t| {
            let sum: f64 = rooms.iter().map(|r| t.fragmented_milli(r)).sum();
            sum.round() as i64
        }),
    };
    all.into_iter().map(product).collect()
}

impl Given {
    fn of(nodes: &[&NodeGpus<'_>], uses: &Uses) -> Option<Self> {
        let (mut known, mut milli) = (false, 0);
        let mut idle: BTreeMap<&str, i64> = BTreeMap::new();
        for node in nodes {
            let Some(used) = uses.node(node.name) else {
                continue;
            };
            known = true;
            for pool in &node.inventory.pools {
                for card in &pool.cards {
                    for holder in &card.holders {
                        milli += i64::from(holder.milli);
                        if used.is_idle(pool, card, holder) {
                            *idle.entry(&holder.pod).or_default() += i64::from(holder.milli);
                        }
                    }
                }
            }
        }
        let mut pods: Vec<(&str, i64)> = idle.into_iter().collect();
        pods.sort_by_key(|(_, milli)| std::cmp::Reverse(*milli));
        known.then(|| Self {
            milli,
            idle_milli: pods.iter().map(|(_, milli)| milli).sum(),
            idle_pods: pods.into_iter().map(|(pod, _)| pod.to_owned()).collect(),
        })
    }
}

impl Counted {
    fn of(inspection: &Inspection, requests: &[CountedRequest]) -> Self {
        let counted: std::collections::HashSet<&str> =
            requests.iter().map(|r| r.pod.as_str()).collect();
        let requests_gpu = |pod: &&std::sync::Arc<tautline_core::model::Pod>| {
            let mut requests = pod.requests.iter();
            requests.any(|(r, milli)| milli >= i64::from(CARD) && inspection.names().is_gpu(r))
        };
        let names = inspection.snapshot().pods().filter(requests_gpu);
        let names = names.map(|p| tautline_core::model::key(&p.namespace, &p.name));
        let mut left: Vec<String> = names.filter(|p| !counted.contains(p.as_str())).collect();
        left.sort_unstable();
        Self {
            pods: requests.len(),
            pods_by_rule: requests.iter().filter(|r| r.by_rule).count(),
            pods_not_counted: left,
            classes: inspection.classes().len(),
            classes_left_out: inspection
                .class_count()
                .saturating_sub(inspection.classes().len()),
        }
    }
}

#[cfg(test)]
mod tests;
