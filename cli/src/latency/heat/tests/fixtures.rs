//! Matrices for tests.

use tautline_latency::report::{Basis, By, Cell, EffectiveRtt, MatrixReport};

/// Nodes without figures.
pub(crate) fn nodes(names: &[&str]) -> MatrixReport {
    let cell = |same: bool| Cell {
        effective: if same {
            EffectiveRtt::new(Basis::Same, 0)
        } else {
            EffectiveRtt::default()
        },
        ..Cell::default()
    };
    let count = names.len();
    MatrixReport {
        by: By::Node,
        names: names.iter().map(|n| (*n).to_owned()).collect(),
        cells: (0..count)
            .map(|i| (0..count).map(|j| cell(i == j)).collect())
            .collect(),
    }
}

/// Three zones, and one without figures.
pub(crate) fn zones() -> MatrixReport {
    let mut report = nodes(&["east", "north", "south", "(no zone)"]);
    report.by = By::Zone;
    for (i, j, basis, micros, measured) in [
        (0, 0, Basis::Measured, 180, 40),
        (0, 1, Basis::Measured, 12_300, 22),
        (0, 2, Basis::Estimated, 31_000, 3),
        (1, 1, Basis::Measured, 240, 38),
        (1, 2, Basis::Configured, 2_500, 0),
        (2, 2, Basis::Old, 999, 0),
    ] {
        let cell = Cell {
            effective: EffectiveRtt::new(basis, micros),
            p10_micros: Some(micros * 8 / 10),
            p90_micros: Some(micros * 13 / 10),
            measured_pairs: measured,
            unreachable_pairs: 0,
        };
        report.cells[i][j] = cell.clone();
        report.cells[j][i] = cell;
    }
    report.cells[3][3] = Cell::default();
    for (i, j) in [(1, 3), (3, 1)] {
        report.cells[i][j] = Cell {
            effective: EffectiveRtt {
                basis: Basis::Unreachable,
                rtt_micros: None,
            },
            unreachable_pairs: 7,
            ..Cell::default()
        };
    }
    report
}
