//! One run: a workload's arrivals on an empty cluster under one policy.

use tautline_gpu_placement::{Board, Kind, Lane, Popularity, Room, Shape, Types, policy::Name};

use crate::{
    arrivals::Arrivals,
    curve::{self, Curve},
    ties::{Chooser, Ties},
    trace::{Trace, Workload},
};

/// How often progress is told, in arrivals.
pub(crate) const TELL: usize = 256;

/// The nodes of a run on a board, in the order of its arrivals.
#[derive(Debug)]
pub struct Cluster {
    pub board: Board,
    cards: i64,
    used_milli: i64,
    measure: Types,
    /// Of each node, in thousandths.
    fragmented: Vec<f64>,
    fragmented_sum: f64,
}

impl Cluster {
    /// All nodes free, and the popularity of the whole workload known.
    pub fn new(trace: &Trace, workload: &Workload, order: &Arrivals, policy: Name) -> Self {
        let mut board = Board::new(policy.policy()).keeping(workload.shapes.len());
        let nodes: Vec<_> = order
            .nodes
            .iter()
            .map(|n| &trace.nodes[*n as usize])
            .collect();
        let kind = |product| Kind {
            product,
            lane: Lane::Milli,
        };
        for node in &nodes {
            board.kind(&kind(node.model.clone()));
        }
        for (i, node) in nodes.iter().enumerate() {
            let kind = board.kind(&kind(node.model.clone()));
            let cards = vec![tautline_gpu_placement::CARD; node.cards.into()];
            board.stand(i, i as f64 / nodes.len() as f64);
            board.set(
                i,
                Some(Room::new(node.cpu_milli, node.memory_bytes, kind, cards)),
            );
        }
        let asked = workload
            .pods
            .iter()
            .map(|p| &workload.shapes[p.shape as usize]);
        board.plan_for(Popularity::of(asked).types());
        let measure = Types::new(board.classes(), board.kinds());
        let fragmented: Vec<f64> = board
            .rooms()
            .map(|(_, r)| measure.fragmented_milli(r))
            .collect();
        Self {
            cards: trace.cards(),
            used_milli: 0,
            fragmented_sum: fragmented.iter().sum(),
            board,
            measure,
            fragmented,
        }
    }

    /// The pod goes to the best node; `None`: it fits nowhere.
    pub fn place(&mut self, shape: &Shape, chooser: &mut Chooser) -> Option<Held> {
        let (node, place) = self.board.best_of(shape, |nth| chooser.replaces(nth))?;
        self.take(shape, node, place.card)
    }

    /// The pod goes to this node and card; `None`: it does not fit.
    pub fn take(&mut self, shape: &Shape, node: usize, card: Option<u16>) -> Option<Held> {
        let mut room = self.board.room(node)?.clone();
        let grant = room.take(shape, card.map(usize::from)).ok()?;
        self.used_milli += shape.milli();
        self.set(node, room);
        Some(Held { node, grant })
    }

    /// The pod leaves.
    pub fn give_back(&mut self, shape: &Shape, held: &Held) {
        if let Some(mut room) = self.board.room(held.node).cloned() {
            room.put_back(shape, &held.grant);
            self.used_milli -= shape.milli();
            self.set(held.node, room);
        }
    }

    fn set(&mut self, node: usize, room: Room) {
        let fragmented = self.measure.fragmented_milli(&room);
        self.fragmented_sum += fragmented - self.fragmented[node];
        self.fragmented[node] = fragmented;
        self.board.set(node, Some(room));
    }

    /// Used GPU in percent of all.
    pub fn allocation(&self) -> f64 {
        curve::allocation(self.cards, self.used_milli)
    }

    /// Idle GPU that the next pod is expected not to be able to use, in percent of all.
    pub fn fragmentation(&self) -> f64 {
        100.0 * self.fragmented_sum / 1000.0 / self.cards as f64
    }
}

/// Where a placed pod is.
#[derive(Clone, Debug)]
pub struct Held {
    pub node: usize,
    pub grant: tautline_gpu_placement::Grant,
}

/// What is written down after each arrival.
#[derive(Clone, Debug, Default)]
pub struct Record {
    arrived_milli: i64,
    arrived: Vec<i64>,
    allocation: Vec<f64>,
    fragmentation: Vec<f64>,
    pub dropped: usize,
}

impl Record {
    pub fn arrival(&mut self, shape: &Shape, placed: bool, cluster: &Cluster) {
        self.arrived_milli += shape.milli();
        self.arrived.push(self.arrived_milli);
        self.allocation.push(cluster.allocation());
        self.fragmentation.push(cluster.fragmentation());
        self.dropped += usize::from(!placed);
    }

    /// Allocated and fragmented GPU in percent, by arrived load.
    pub fn curves(&self, cards: i64) -> (Curve, Curve) {
        (
            curve::curve(cards, &self.arrived, &self.allocation),
            curve::curve(cards, &self.arrived, &self.fragmentation),
        )
    }
}

/// Runs all arrivals; `tell` hears of progress, in arrivals.
pub fn run(
    trace: &Trace,
    workload: &Workload,
    order: &Arrivals,
    policy: Name,
    ties: Ties,
    tell: &(dyn Fn(u64) + Sync),
) -> Record {
    let mut cluster = Cluster::new(trace, workload, order, policy);
    let mut chooser = Chooser::new(ties, order.seed);
    let mut record = Record::default();
    for some in order.pods.chunks(TELL) {
        for pod in some {
            let shape = workload.shape_of(*pod);
            let placed = cluster.place(shape, &mut chooser).is_some();
            record.arrival(shape, placed, &cluster);
        }
        tell(some.len() as u64);
    }
    record
}
