//! Costs between two nodes, for every pair of nodes.

use crate::{model::Prefer, planning::MAX_NORMALIZED_COST};

/// The cost of two nodes between which a limit is exceeded.
const OVER_LIMIT: u64 = u64::MAX;

/// The normalized costs between two members, by their nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    nodes: usize,
    costs: Vec<u64>,
    weight: u32,
}

impl Matrix {
    /// Returns the normalized cost of two members on the nodes at these positions; `None` if a
    /// limit is exceeded.
    pub fn get(&self, of: usize, other: usize) -> Option<u64> {
        let cost = self.costs[of * self.nodes + other];
        (cost != OVER_LIMIT).then_some(cost)
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Returns the sum of the rules' weights.
    pub fn weight(&self) -> u32 {
        self.weight
    }
}

/// Builds a [`Matrix`] of the costs that the providers of several rules report.
#[derive(Clone, Debug)]
pub struct MatrixBuilder {
    nodes: usize,
    rules: Vec<RuleMatrix>,
}

#[derive(Clone, Debug)]
struct RuleMatrix {
    weight: u32,
    /// The cost up to which all pairs of nodes are equally good.
    equal_up_to: Option<i64>,
    costs: Vec<i64>,
}

impl MatrixBuilder {
    /// Creates a builder for `nodes` nodes without rules, which allows all pairs at no cost.
    pub fn new(nodes: usize) -> Self {
        Self {
            nodes,
            rules: Vec::new(),
        }
    }

    /// Begins the next rule, all of whose costs are over the limit until [`row`](Self::row) sets
    /// them. `request_cost` is the cost up to which a node is within the rule's request.
    pub fn begin_rule(&mut self, weight: u32, request_cost: Option<i64>, prefer: Prefer) {
        let equal_up_to = request_cost.filter(|_| prefer == Prefer::WithinRequest);
        self.rules.push(RuleMatrix {
            weight,
            equal_up_to,
            costs: vec![-1; self.nodes * self.nodes],
        });
    }

    /// Sets the latest rule's costs of the second member by its node, if the first member is on the
    /// node at position `of`. A negative cost is over the limit, and so is one that is absent.
    pub fn row(&mut self, of: usize, costs: impl IntoIterator<Item = i64>) {
        if let Some(rule) = self.rules.last_mut() {
            let row = &mut rule.costs[of * self.nodes..][..self.nodes];
            for (cost, new) in row.iter_mut().zip(costs) {
                *cost = new;
            }
        }
    }

    /// Returns the weighted mean of the rules' costs. Each rule is scaled from its lowest to its
    /// greatest cost in the matrix; costs within the request all equal the request's.
    pub fn build(self) -> Matrix {
        let size = self.nodes * self.nodes;
        let weights: u64 = self.rules.iter().map(|r| u64::from(r.weight)).sum();
        let mut sums = vec![0_u128; size];
        let mut is_over = vec![false; size];
        for rule in &self.rules {
            let clamped = |cost: i64| cost.max(rule.equal_up_to.unwrap_or(cost));
            let usable = || rule.costs.iter().filter(|c| **c >= 0).map(|c| clamped(*c));
            let low = usable().min().unwrap_or_default();
            let span = usable().max().unwrap_or_default().abs_diff(low);
            for (at, cost) in rule.costs.iter().enumerate() {
                is_over[at] |= *cost < 0;
                if *cost >= 0 && rule.weight > 0 {
                    let cost = fraction(clamped(*cost).abs_diff(low), span);
                    sums[at] += u128::from(cost) * u128::from(rule.weight);
                }
            }
        }
        let mean = |sum: u128| u64::try_from(sum / u128::from(weights.max(1)));
        let costs = sums.into_iter().zip(is_over).map(|(sum, over)| match over {
            true => OVER_LIMIT,
            false => mean(sum).unwrap_or(MAX_NORMALIZED_COST),
        });
        Matrix {
            nodes: self.nodes,
            costs: costs.collect(),
            weight: u32::try_from(weights).unwrap_or(u32::MAX),
        }
    }
}

/// Returns the fraction `above / span` as a normalized cost.
fn fraction(above: u64, span: u64) -> u64 {
    if span == 0 {
        return 0;
    }
    if u32::try_from(span).is_ok() {
        // The same division in 64 bits.
        let (quotient, rest) = (MAX_NORMALIZED_COST / span, MAX_NORMALIZED_COST % span);
        return above * quotient + above * rest / span;
    }
    let scaled = u128::from(above) * u128::from(MAX_NORMALIZED_COST) / u128::from(span);
    u64::try_from(scaled).unwrap_or(MAX_NORMALIZED_COST)
}
