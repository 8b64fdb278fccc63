//! The order of pods and nodes: recorded, or drawn at random.

use crate::{
    files::{self, Error},
    trace::{Trace, Workload},
};

/// The total of requests at which drawn arrivals end, in percent of all cards.
const UNTIL_PERCENT: i64 = 130;

/// The order in which pods arrive, and in which nodes are filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrivals {
    /// Number of the order, and seed of random numbers.
    pub seed: u64,
    /// Indexes of the workload's pods; a pod may arrive several times.
    pub pods: Vec<u32>,
    /// Indexes of the trace's nodes; among equally good nodes the first wins.
    pub nodes: Vec<u32>,
    pub(crate) drawn: bool,
}

impl Arrivals {
    /// Reads the arrivals of a seed from the trace. If the trace has none, draws random pods up to
    /// 130 % of all cards, and a random order of the nodes.
    pub fn read_or_draw(trace: &Trace, workload: &Workload, seed: u64) -> Result<Self, Error> {
        let path = |end: &str| {
            let name = format!("arrivals/{}_{seed}.{end}", workload.name);
            trace.dir.join(name)
        };
        let (pods, ranks) = (path("txt"), path("ranks"));
        if !files::exists(&pods) {
            return Self::draw(trace, workload, seed);
        }
        let order: Vec<u32> = files::read_numbers(&pods)?;
        let last = workload.pods.len().saturating_sub(1);
        if let Some(line) = order.iter().position(|p| *p as usize > last) {
            return Err(Error::Invalid(format!(
                "{}, line {}: there is no pod {}; workload {} has pods 0 to {}",
                pods.display(),
                line + 1,
                order[line],
                workload.name,
                last
            )));
        }
        let mut nodes: Vec<u32> = (0..trace.nodes.len() as u32).collect();
        if files::exists(&ranks) {
            let rank: Vec<i64> = files::read_numbers(&ranks)?;
            if rank.len() != nodes.len() {
                return Err(Error::Invalid(format!(
                    "{} has {} lines and there are {} nodes; write one rank a node",
                    ranks.display(),
                    rank.len(),
                    nodes.len()
                )));
            }
            nodes.sort_by_key(|n| rank[*n as usize]);
        }
        Ok(Self {
            seed,
            pods: order,
            nodes,
            drawn: false,
        })
    }

    fn draw(trace: &Trace, workload: &Workload, seed: u64) -> Result<Self, Error> {
        if !workload.shapes.iter().any(|s| s.needs_gpu()) {
            return Err(Error::Invalid(format!(
                "no pod of workload {} requests GPU; there is nothing to compare",
                workload.name
            )));
        }
        let mut random = fastrand::Rng::with_seed(seed);
        let wanted = trace.cards() * 1000 * UNTIL_PERCENT / 100;
        let (mut pods, mut milli) = (Vec::new(), 0);
        while milli < wanted {
            let pod = random.u32(..workload.pods.len() as u32);
            milli += workload.shape_of(pod).milli();
            pods.push(pod);
        }
        let mut nodes: Vec<u32> = (0..trace.nodes.len() as u32).collect();
        random.shuffle(&mut nodes);
        Ok(Self {
            seed,
            pods,
            nodes,
            drawn: true,
        })
    }
}
