//! Ranks the nodes of a round.

use tautline_core::planning::Plan;
use tautline_scheduler_extender::explain::Record;

/// Returns the rank of each node by position: 1 is the best, nodes that tie share a rank, and
/// unusable nodes have `None`.
pub(super) fn ranks(plan: &Plan) -> Vec<Option<usize>> {
    let mut usable: Vec<usize> = plan.usable().collect();
    usable.sort_by_key(|at| plan.verdicts[*at].rank());
    let mut ranks = vec![None; plan.verdicts.len()];
    let mut before: Option<(usize, usize)> = None;
    for (i, at) in usable.into_iter().enumerate() {
        let rank = match before {
            Some((last, rank)) if plan.verdicts[last].rank() == plan.verdicts[at].rank() => rank,
            _ => i + 1,
        };
        ranks[at] = Some(rank);
        before = Some((at, rank));
    }
    ranks
}

/// Returns the ranks of a record's nodes. If offers of the underlay made nodes usable, the ranks
/// follow the order of the record.
pub(super) fn recorded_ranks(record: &Record, plan: &Plan) -> Vec<Option<usize>> {
    let ranks = ranks(plan);
    let mut both = record.nodes.iter().zip(&ranks);
    if both.all(|(node, rank)| node.usable == rank.is_some()) {
        return ranks;
    }
    let by_order = record.nodes.iter().enumerate();
    by_order
        .map(|(i, node)| node.usable.then_some(i + 1))
        .collect()
}
