pub(crate) mod fixtures;

use tautline_latency::report::EffectiveRtt;

use self::fixtures::{nodes, zones};
use super::*;

const ASCII: Canvas = Canvas {
    unicode: false,
    colours: Colours::None,
    columns: usize::MAX,
};

fn some_nodes(count: usize) -> MatrixReport {
    let names: Vec<String> = (0..count)
        .map(|i| format!("worker-with-a-name-{i}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut report = nodes(&names);
    for i in 0..count {
        for j in (0..count).filter(|j| *j != i) {
            let micros = 100 * (1 + i.abs_diff(j) as u64).pow(2);
            report.cells[i][j].effective = EffectiveRtt::new(Basis::Measured, micros);
        }
    }
    report
}

#[test]
fn zones_in_ascii_and_in_unicode() {
    insta::assert_snapshot!("zones_ascii", map(&zones(), ASCII));
    let unicode = Canvas {
        unicode: true,
        ..ASCII
    };
    insta::assert_snapshot!("zones_unicode", map(&zones(), unicode));
}

#[test]
fn long_node_names_become_numbers() {
    insta::assert_snapshot!("nodes_ascii", map(&some_nodes(11), ASCII));
}

#[test]
fn colours_cover_the_figures_and_are_reset() {
    for (colours, ground) in [
        (
            Colours::All,
            "\u{1b}[48;2;255;234;70;38;5;16m   ~31ms \u{1b}[0m",
        ),
        (
            Colours::Some256,
            "\u{1b}[48;5;221;38;5;16m   ~31ms \u{1b}[0m",
        ),
    ] {
        let canvas = Canvas { colours, ..ASCII };
        let text = map(&zones(), canvas);
        assert!(text.contains(ground), "{text:?}");
        for line in text.lines().filter(|l| l.contains('\u{1b}')) {
            let (on, off) = (line.matches("m").count(), line.matches("\u{1b}[0m").count());
            assert!(off > 0 && on >= off, "{line:?}");
        }
    }
}

#[test]
fn wide_map_loses_figures_then_splits_into_blocks() {
    let report = some_nodes(12);
    let narrow = |columns| map(&report, Canvas { columns, ..ASCII });
    insta::assert_snapshot!("nodes_narrow", narrow(60));
    insta::assert_snapshot!("nodes_in_pieces", narrow(40));
    for columns in [0, 1, 20, 40, 60, 80, 120] {
        let text = narrow(columns);
        let map = text.split("(logarithmic)").next().unwrap_or_default();
        let rows = map.lines().filter(|l| l.contains("worker-with"));
        let widest = rows.map(UnicodeWidthStr::width).max().unwrap();
        assert!(widest <= columns.max(27), "{columns}: {text}");
    }
}

#[test]
fn map_of_zero_and_one_node() {
    let nothing = map(&MatrixReport::default(), ASCII);
    assert!(nothing.contains("0 zones, 0 pairs"), "{nothing}");
    let one = map(&nodes(&["alone"]), ASCII);
    assert!(one.starts_with("       alone\nalone\n\n"), "{one:?}");
    assert!(!one.contains("logarithmic"), "{one}");
    assert!(one.contains("\n1 node; pairs: 0 measured"), "{one}");
}

#[test]
fn names_are_cleaned_and_cut() {
    let huge = "n".repeat(253);
    let text = map(&nodes(&["a\u{1b}[2Jb", &huge]), ASCII);
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert!(text.lines().all(|l| l.width() < 110), "{text}");
}
