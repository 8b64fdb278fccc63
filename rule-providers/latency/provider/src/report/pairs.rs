//! The summary of many pairs of nodes in one cell of a matrix.

use std::collections::HashMap;

use super::{
    matrix::{By, Cell, MatrixReport},
    model::{Basis, EffectiveRtt},
};

impl MatrixReport {
    /// Returns a matrix of groups instead of nodes: the medians over the pairs of their members,
    /// without those of a node and itself. A group has a label and the names of its members.
    pub fn grouped(&self, groups: &[(String, Vec<&str>)]) -> Self {
        let mut group_of = HashMap::new();
        for (group, (_, members)) in groups.iter().enumerate() {
            group_of.extend(members.iter().map(|name| (*name, group)));
        }
        let group = |i: usize| group_of.get(self.names.get(i)?.as_str()).copied();
        let count = groups.len();
        let mut pairs = vec![Pairs::default(); count * count];
        for (i, row) in self.cells.iter().enumerate() {
            for (j, cell) in row.iter().enumerate().filter(|(j, _)| *j != i) {
                if let Some((a, b)) = group(i).zip(group(j)) {
                    pairs[a * count + b].add(cell.effective);
                }
            }
        }
        let cell = |i: usize, j: usize| pairs[i * count + j].cell();
        Self {
            by: By::Zone,
            names: groups.iter().map(|(label, _)| label.clone()).collect(),
            cells: (0..count)
                .map(|i| (0..count).map(|j| cell(i, j)).collect())
                .collect(),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    figures: Vec<(u64, Basis)>,
    unreachable: usize,
}

impl Pairs {
    pub(super) fn add(&mut self, rtt: EffectiveRtt) {
        match (rtt.basis, rtt.rtt_micros) {
            (Basis::Unreachable, _) => self.unreachable += 1,
            (Basis::Nothing | Basis::Same, _) | (_, None) => {}
            (basis, Some(micros)) => self.figures.push((micros, basis)),
        }
    }

    pub(super) fn cell(&self) -> Cell {
        let of = |basis| self.figures.iter().filter(|f| f.1 == basis).count();
        let measured_pairs = of(Basis::Measured);
        let bases = [
            (Basis::Measured, measured_pairs),
            (Basis::Configured, of(Basis::Configured)),
            (Basis::Estimated, of(Basis::Estimated)),
            (Basis::Old, of(Basis::Old)),
            (Basis::Unreachable, self.unreachable),
        ];
        // The first of equal counts decides.
        let most = bases.iter().rev().filter(|b| b.1 > 0).max_by_key(|b| b.1);
        let basis = most.map_or(Basis::Nothing, |b| b.0);
        let mut sorted: Vec<u64> = self.figures.iter().map(|f| f.0).collect();
        sorted.sort_unstable();
        let known = basis != Basis::Unreachable;
        let at = |percent| known.then(|| quantile(&sorted, percent)).flatten();
        Cell {
            effective: EffectiveRtt {
                basis,
                rtt_micros: at(50),
            },
            p10_micros: at(10),
            p90_micros: at(90),
            measured_pairs,
            unreachable_pairs: self.unreachable,
        }
    }
}

/// Returns a quantile of a sorted list: the lower figure if it falls between two.
fn quantile(sorted: &[u64], percent: usize) -> Option<u64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get(last * percent / 100).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_of_the_list_and_in_order(mut list in prop::collection::vec(0u64..100, 1..50)) {
            list.sort_unstable();
            let [low, middle, high] = [10, 50, 90].map(|p| quantile(&list, p).unwrap());
            prop_assert!(low <= middle && middle <= high);
            prop_assert!(list.contains(&low) && list.contains(&high));
        }
    }

    #[test]
    fn grouped_cells_are_medians_without_the_diagonal() {
        let cell = |basis, rtt_micros| Cell {
            effective: EffectiveRtt { basis, rtt_micros },
            ..Cell::default()
        };
        let same = || cell(Basis::Same, Some(0));
        let measured = |micros| cell(Basis::Measured, Some(micros));
        let lost = || cell(Basis::Unreachable, None);
        let report = MatrixReport {
            by: By::Node,
            names: ["a1", "a2", "b"].map(str::to_owned).into(),
            cells: vec![
                vec![same(), measured(5), measured(900)],
                vec![measured(5), same(), cell(Basis::Estimated, Some(700))],
                vec![lost(), lost(), same()],
            ],
        };
        let groups = [
            ("a".to_owned(), vec!["a1", "a2"]),
            ("b".to_owned(), vec!["b"]),
        ];
        let grouped = report.grouped(&groups);
        let at = |i: usize, j: usize| grouped.cells[i][j].effective;
        assert_eq!(at(0, 0), EffectiveRtt::new(Basis::Measured, 5));
        assert_eq!(at(0, 1).rtt_micros, Some(700));
        assert_eq!(at(1, 0).basis, Basis::Unreachable);
        assert_eq!(at(1, 1), EffectiveRtt::default());
        assert_eq!(grouped.cells[1][0].unreachable_pairs, 2);
        assert_eq!(grouped.names, ["a", "b"]);
    }

    #[test]
    fn nothing_has_no_quantile() {
        assert_eq!(quantile(&[], 50), None);
        assert_eq!(quantile(&[7], 90), Some(7));
        assert_eq!(Pairs::default().cell(), Cell::default());
    }
}
