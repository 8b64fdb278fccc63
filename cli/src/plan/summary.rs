//! Sums up the results of many pods: their number for each outcome and reason.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    local::Placement,
    render::View,
    table::{grid, titled},
};

/// The number of pods from which a plan has a summary.
const MIN_PODS: usize = 10;

/// Returns the summary; `None` for a few pods.
pub(super) fn text(placements: &[Placement], view: View) -> Option<String> {
    if placements.len() < MIN_PODS {
        return None;
    }
    let mut rows = BTreeMap::<(&str, String), (usize, BTreeSet<&str>)>::new();
    for placement in placements {
        let key = match (&placement.node, &placement.round) {
            (Some(_), Some(_)) => ("goes to a node", "by its offers".to_owned()),
            (Some(_), None) => ("goes to a node", "no offer governs it".to_owned()),
            (None, _) => (
                "stays pending",
                placement.message.clone().unwrap_or_default(),
            ),
        };
        let (pods, nodes) = rows.entry(key).or_default();
        *pods += 1;
        nodes.extend(placement.node.as_deref());
    }
    let rows = rows.into_iter().map(|((outcome, reason), (pods, nodes))| {
        let nodes = match nodes.len() {
            0 => String::new(),
            count => count.to_string(),
        };
        vec![outcome.to_owned(), pods.to_string(), nodes, reason]
    });
    let table = grid(&["OUTCOME", "PODS", "NODES", "REASON"], rows);
    let table = titled(&format!("Summary of {} pods", placements.len()), &table);
    Some(table.lines().map(|line| view.clip(line) + "\n").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_counted_by_outcome_and_reason() {
        let placement = |at: usize| Placement {
            namespace: "shop".to_owned(),
            pod: format!("web-{at}"),
            node: (at < 7).then(|| format!("n{}", at % 3)),
            message: (at >= 7).then(|| "0/3 nodes are available: 3 insufficient cpu.".to_owned()),
            ..Placement::default()
        };
        let placements: Vec<Placement> = (0..12).map(placement).collect();
        assert_eq!(text(&placements[..9], View::plain(9)), None);
        assert_eq!(
            text(&placements, View::plain(9)).unwrap(),
            "Summary of 12 pods:\n  \
             OUTCOME          PODS   NODES   REASON\n  \
             goes to a node   7      3       no offer governs it\n  \
             stays pending    5      -       0/3 nodes are available: 3 insufficient cpu.\n"
        );
        let narrow = View {
            columns: Some(40),
            ..View::plain(9)
        };
        let text = text(&placements, narrow).unwrap();
        assert!(
            text.lines().all(|line| line.chars().count() <= 40),
            "{text}"
        );
    }
}
