//! Tautline's policy: a placement costs the loss that it causes to future pods.
//!
//! cost =  Σ wₜ (uₜ(before) − uₜ(after))   GPU that class t can no longer use there
//!      +  card (worth(left) − worth(left − share))   the rest of the card ([`RemainderValues`])
//!      +  mix (m(before) − m(after))       GPU that the node's CPU can no longer feed
//!      +  full · idle(after) / 8 cards     fuller and smaller nodes first
//!      +  order · position                 one node after the other
//!
//! uₜ is the GPU that copies of class t could take on the node, as cards and CPU allow; wₜ is
//! the class's probability, times the scarcity of the GPU that it can use: idle GPU
//! of all nodes over Σ uₜ. m is the idle GPU that the node's CPU feeds with pods of the
//! average mix. Filling nodes one after the other, in an order that mixes their makes,
//! leaves whole nodes for the pods that need them. Where pods leave as fast as they come, it
//! would scatter the pods instead; so the terms move from [`FILL`] to [`CHURN`] with a rising
//! turnover, and with falling idle GPU ([`Terms::at`]).

use smallvec::SmallVec;

use super::{
    NodeView, PlacementCost, Policy, remainder_values::RemainderValues, usable_table::UsableTable,
};
use crate::{
    node_capacity::NodeCapacity,
    planned_classes::{PlannedClass, PlannedClasses},
    shape::{CARD_MILLI, Shape},
};

/// The weights of the terms of the cost.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Terms {
    /// Exponent of the scarcity in wₜ.
    scarcity: f64,
    /// Weight of CPU in a class's usable GPU ([`UsableTable::new`]).
    cpu: f64,
    card: f64,
    mix: f64,
    /// CPU that the average mix needs for its GPU, as a fraction of the CPU that it requests.
    mix_cpu: f64,
    /// Weight of remainders in a class's usable GPU ([`UsableTable::new`]).
    remainder_weight: f64,
    full: f64,
    order: f64,
}

/// The terms for a cluster that fills without departures.
const FILL: Terms = Terms {
    scarcity: 0.7,
    cpu: 1.0 / 0.7,
    card: 12.0,
    mix: 1.0,
    mix_cpu: 0.8,
    remainder_weight: 0.0,
    full: 0.0,
    order: 3000.0,
};

/// The terms for a full cluster with as many departures as arrivals.
const CHURN: Terms = Terms {
    scarcity: 1.0,
    cpu: 0.5,
    card: 4.0,
    mix: 0.5,
    mix_cpu: 0.6,
    remainder_weight: 1.0,
    full: 200.0,
    order: 75.0,
};

impl Terms {
    /// Returns terms between [`FILL`] at turnover 0 and [`CHURN`] at turnover 1. The CPU terms of
    /// `CHURN` count under pressure only: they make pods with little CPU cheap on idle nodes with
    /// little CPU, and so break nodes that large pods need, which pays only if hardly any such
    /// nodes are left.
    fn at(turnover: f64, pressure: f64) -> Self {
        let a = FILL;
        let b = Self {
            cpu: CHURN.cpu * pressure,
            mix: CHURN.mix * pressure,
            ..CHURN
        };
        let between = |x: f64, y: f64| x + (y - x) * turnover;
        Self {
            scarcity: between(a.scarcity, b.scarcity),
            cpu: between(a.cpu, b.cpu),
            card: between(a.card, b.card),
            mix: between(a.mix, b.mix),
            mix_cpu: between(a.mix_cpu, b.mix_cpu),
            remainder_weight: between(a.remainder_weight, b.remainder_weight),
            full: between(a.full, b.full),
            order: between(a.order, b.order),
        }
    }
}

/// The number of capacity changes over which turnover is averaged.
const TURNOVER_CHANGES: f64 = 1000.0;
/// The number of capacity changes over which idle GPU is averaged.
const IDLE_CHANGES: f64 = 500.0;
/// The idle fraction of all GPU up to which the pressure is full.
const FULL_PRESSURE_IDLE_RATIO: f64 = 0.08;
/// The idle fraction of all GPU from which on there is no pressure.
const NO_PRESSURE_IDLE_RATIO: f64 = 0.11;
/// The relative error of a weight above which the weights are computed again.
const MAX_WEIGHT_ERROR_RATIO: f64 = 0.03;
/// The lower bound of idle and usable GPU in the scarcity, in thousandths of a card, so that the
/// last cards are not infinitely scarce.
const MIN_GPU_MILLI: f64 = 8000.0;
/// The steps of the integer cost for each thousandth of a card.
const COST_STEPS_PER_MILLI: f64 = 64.0;
/// The resolution of costs in thousandths of a card: less than a hundredth of a card is useless.
const RESOLUTION_MILLI: f64 = 10.0;
/// The maximum number of groups for which a placement allocates no memory.
const MAX_STACK_GROUPS: usize = 128;

#[derive(Clone, Debug)]
pub(super) struct Tautline {
    types: PlannedClasses,
    terms: Terms,
    table: UsableTable,
    remainder_values: RemainderValues,
    cpu_per_gpu: f64,
    idle_milli: f64,
    cards_milli: f64,
    usable: Vec<f64>,
    weights: Vec<f64>,
    weights_by_kind: Vec<Vec<f64>>,
    departures: f64,
    turnover: f64,
    idle: f64,
    pressure: f64,
    epoch: u32,
}

impl Default for Tautline {
    fn default() -> Self {
        Self {
            types: PlannedClasses::default(),
            terms: FILL,
            table: UsableTable::default(),
            remainder_values: RemainderValues::default(),
            cpu_per_gpu: 0.0,
            idle_milli: 0.0,
            cards_milli: 0.0,
            usable: Vec::new(),
            weights: Vec::new(),
            weights_by_kind: Vec::new(),
            departures: 0.0,
            turnover: 0.0,
            idle: 1.0,
            pressure: 0.0,
            epoch: 0,
        }
    }
}

impl Tautline {
    fn rebuild(&mut self) {
        self.terms = Terms::at(self.turnover, self.pressure);
        let (cpu_weight, remainder_weight) = (self.terms.cpu, self.terms.remainder_weight);
        self.table = UsableTable::new(&self.types, cpu_weight, remainder_weight);
        let sum = |f: fn(&PlannedClass) -> i64| -> f64 {
            self.types.iter().map(|t| t.probability * f(t) as f64).sum()
        };
        let gpu = sum(|t| t.request.total_milli());
        let cpu = sum(|t| t.request.cpu_milli);
        let cpu_a_milli = if gpu > 0.0 { cpu / gpu } else { 0.0 };
        self.cpu_per_gpu = self.terms.mix_cpu * cpu_a_milli;
        self.idle_milli = 0.0;
        self.cards_milli = 0.0;
        self.usable = vec![0.0; self.types.len()];
        self.weights.clear();
    }

    fn count_node(&mut self, node: NodeView<'_>, sign: f64) {
        self.idle_milli += sign * node.capacity.idle_milli() as f64;
        self.cards_milli += sign * (node.capacity.cards().len() * usize::from(CARD_MILLI)) as f64;
        let usable = node
            .precomputed
            .get(self.table.group_count()..)
            .unwrap_or_default();
        for (class, u) in self.table.classes_on(node.capacity.kind()).zip(usable) {
            self.usable[class] += sign * u;
        }
    }

    fn weight(&self, class: usize, p: f64) -> f64 {
        let usable = self.usable[class].max(MIN_GPU_MILLI);
        p * (self.idle_milli.max(MIN_GPU_MILLI) / usable).powf(self.terms.scarcity)
    }

    fn fed_by_cpu(&self, cpu_milli: f64, idle_milli: f64) -> f64 {
        match self.cpu_per_gpu {
            rate if rate > 0.0 => idle_milli.min(cpu_milli / rate),
            _ => idle_milli,
        }
    }

    fn lost_value(
        &self,
        capacity: &NodeCapacity,
        weights: &[f64],
        usable: &[f64],
        cpu: f64,
        of_cards: &[f64],
    ) -> f64 {
        let after = self.table.usable_by_class(capacity.kind(), cpu, of_cards);
        let each = weights.iter().zip(usable).zip(after);
        each.map(|((w, before), after)| w * (before - after)).sum()
    }
}

impl Policy for Tautline {
    fn plan_for(&mut self, types: PlannedClasses) {
        let demand = types.iter();
        let demand = demand.map(|t| (t.request.milli, t.probability * f64::from(t.request.cards)));
        self.remainder_values = RemainderValues::from_demand(demand);
        self.types = types;
        self.rebuild();
    }

    fn refresh(&mut self) -> bool {
        let turnover = (1.25 * self.departures).min(1.0);
        let pressure = ((NO_PRESSURE_IDLE_RATIO - self.idle)
            / (NO_PRESSURE_IDLE_RATIO - FULL_PRESSURE_IDLE_RATIO))
            .clamp(0.0, 1.0);
        let pressed = (pressure - self.pressure).abs() > 0.1
            || (pressure != self.pressure && (pressure == 0.0 || pressure == 1.0));
        let moved = (turnover - self.turnover).abs() > 0.05
            || (turnover == 1.0 && self.turnover < 1.0)
            || (self.turnover > 0.0 && pressed);
        if moved {
            (self.turnover, self.pressure) = (turnover, pressure);
            self.rebuild();
        }
        moved
    }

    fn node_changed(&mut self, before: Option<NodeView<'_>>, after: Option<NodeView<'_>>) {
        let idle = |seen: &Option<NodeView<'_>>| seen.map(|s| s.capacity.idle_milli());
        let (was, is) = (idle(&before), idle(&after));
        if let Some(before) = before {
            self.count_node(before, -1.0);
        }
        if let Some(after) = after {
            self.count_node(after, 1.0);
        }
        if let (Some(was), Some(is)) = (was, is) {
            if was != is {
                let left = if is > was { 2.0 } else { 0.0 };
                self.departures += (left - self.departures) / TURNOVER_CHANGES;
            }
            let idle = self.idle_milli / self.cards_milli.max(1.0);
            self.idle += (idle - self.idle) / IDLE_CHANGES;
        }
    }

    fn epoch(&mut self) -> u32 {
        let now = |(class, t): (usize, &PlannedClass)| self.weight(class, t.probability);
        let drifted = |(now, old): (f64, &f64)| (now - old).abs() > MAX_WEIGHT_ERROR_RATIO * old;
        let all = self.types.iter().enumerate().map(now);
        if self.weights.len() != self.types.len() || all.clone().zip(&self.weights).any(drifted) {
            self.weights = all.collect();
            self.weights_by_kind = (0..self.types.kind_count())
                .map(|kind| {
                    let classes = self.table.classes_on(kind as u16);
                    classes.map(|class| self.weights[class]).collect()
                })
                .collect();
            self.epoch = self.epoch.wrapping_add(1);
        }
        self.epoch
    }

    fn precompute(&self, capacity: &NodeCapacity) -> Box<[f64]> {
        self.table.precompute(capacity)
    }

    fn place(&self, node: NodeView<'_>, shape: &Shape) -> PlacementCost {
        let (capacity, groups) = (node.capacity, self.table.group_count());
        let (of_cards, usable) = node
            .precomputed
            .split_at(groups.min(node.precomputed.len()));
        let weights = self.weights_by_kind.get(usize::from(capacity.kind()));
        let weights = weights.map_or(&[][..], |w| w);
        let cpu = (capacity.cpu_milli() - shape.cpu_milli) as f64;
        let idle = capacity.idle_milli() as f64;
        let left = idle - shape.milli() as f64;
        let fed = self.fed_by_cpu(capacity.cpu_milli() as f64, idle) - self.fed_by_cpu(cpu, left);
        // Equal nodes must have equal costs to the last digit, except for the position cost.
        let alike = self.terms.mix * fed + self.terms.full * left / (8.0 * f64::from(CARD_MILLI));
        let shared = alike + self.terms.order * node.position;

        // The whole cards are taken, whichever card gives the share.
        let mut after: SmallVec<[f64; MAX_STACK_GROUPS]> = of_cards.into();
        let after = &mut after[..];
        let free = capacity.free_cards().saturating_sub(shape.whole.into());
        for _ in 0..shape.whole {
            self.table.add_card(after, CARD_MILLI, -1.0);
        }
        self.table.count_whole_cards(free, after);
        let rounded = |cost: f64| (cost.max(0.0) * COST_STEPS_PER_MILLI).round() as i64;
        let place = |cost: f64, alike: f64, card: Option<usize>| {
            let cost = rounded(cost);
            PlacementCost {
                cost,
                position_cost: cost - rounded(alike).min(cost),
                card: card.map(|card| card as u16),
            }
        };
        if shape.share == 0 {
            let lost = self.lost_value(capacity, weights, usable, cpu, after);
            return place(shared + lost, alike + lost, None);
        }
        let mut best: Option<(f64, f64, usize)> = None;
        for (card, left) in capacity.cards().iter().enumerate() {
            let tried = capacity.cards()[..card].contains(left);
            if tried || *left < shape.share || (*left == CARD_MILLI && free == 0) {
                continue;
            }
            let rest = left - shape.share;
            self.table.add_card(after, *left, -1.0);
            self.table.add_card(after, rest, 1.0);
            self.table
                .count_whole_cards(free - usize::from(*left == CARD_MILLI), after);
            let worth = self.remainder_values.value(*left) - self.remainder_values.value(rest);
            let lost = self.lost_value(capacity, weights, usable, cpu, after);
            let cost = shared + lost + self.terms.card * worth;
            self.table.add_card(after, rest, -1.0);
            self.table.add_card(after, *left, 1.0);
            if best.is_none_or(|(b, ..)| cost < b - 1e-9) {
                best = Some((cost, alike + lost + self.terms.card * worth, card));
            }
        }
        let (cost, alike, card) = best.unwrap_or((shared, alike, 0));
        place(cost, alike, Some(card))
    }

    fn resolution(&self) -> i64 {
        (RESOLUTION_MILLI * COST_STEPS_PER_MILLI) as i64
    }
}
