//! The documents' table and plots.

use std::fs;

use anyhow::Result;
use tautline_bench::write_to_page;
use tautline_report::{self as svg, Axis, LineChart};
use tautline_tests::root;

use crate::{
    scores::quantile,
    table::{HEAD, Line},
};

/// The world and targets whose errors are plotted.
const SHOWN: (&str, usize) = ("pl490", 16);

#[derive(Default)]
pub struct Pages {
    pub lines: Vec<Line>,
    /// Sorted errors of the shown world, a method's first seed.
    errors: Vec<(&'static str, Vec<f32>)>,
}

impl Pages {
    pub fn keep(&mut self, world: &str, k: usize, method: &'static str, errors: &[f32]) {
        let known = self.errors.iter().any(|e| e.0 == method);
        if (world, k) == SHOWN && !known {
            self.errors.push((method, errors.to_vec()));
        }
    }

    /// Writes the table between the marks of docs/latency.md, and the plots into its folder.
    ///
    /// # Errors
    /// Where the page or its marks are missing, or a file cannot be written.
    pub fn write(&self) -> Result<()> {
        let lines = self.lines.iter().map(Line::markdown);
        let table: Vec<String> = [HEAD.to_owned()].into_iter().chain(lines).collect();
        write_to_page("docs/latency.md", "latency", &(table.join("\n") + "\n"))?;
        let docs = root().join("docs");
        fs::write(docs.join("latency-errors.svg"), self.error_plot())?;
        fs::write(docs.join("latency-choices.svg"), self.choice_plot())?;
        Ok(())
    }

    fn error_plot(&self) -> String {
        let curve = |errors: &[f32]| {
            (0..=50)
                .map(|at| f64::from(at) / 50.0)
                .map(|part| (quantile(errors, part).max(1e-3), part))
                .collect()
        };
        let lines = self
            .errors
            .iter()
            .map(|(name, errors)| (*name, curve(errors)));
        plot(
            "PlanetLab-490, k = 16: part of pairs within an error",
            "relative error of pairs that were not measured",
            [0.005, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 5.0],
            lines,
        )
    }

    fn choice_plot(&self) -> String {
        let shown = || self.lines.iter().filter(|line| line.world == SHOWN.0);
        let mut methods: Vec<&str> = shown().map(|line| line.method.as_str()).collect();
        methods.sort_unstable_by_key(|method| std::cmp::Reverse(method.to_lowercase()));
        methods.dedup();
        let points = |method: &str| {
            let lines = shown().filter(|line| line.method == method);
            lines.map(|l| (l.k as f64, l.figures.within_1ms)).collect()
        };
        let lines = methods.iter().map(|method| (*method, points(method)));
        plot(
            "PlanetLab-490: chosen node within 1 ms of the best of 489",
            "targets a node measures",
            [8.0, 16.0, 32.0],
            lines,
        )
    }
}

/// Parts of 1 over a logarithmic axis, which the marks span.
fn plot<'a, const MARKS: usize>(
    title: &str,
    across: &str,
    marks: [f64; MARKS],
    lines: impl Iterator<Item = (&'a str, Vec<(f64, f64)>)>,
) -> String {
    let line = |(colour, (name, points)): (usize, (&str, _))| svg::Line {
        label: name.replace("**", ""),
        colour: Some(colour),
        points,
    };
    LineChart {
        title,
        x: Axis {
            label: across,
            from: marks[0],
            to: marks[MARKS - 1],
            marks: marks.to_vec(),
            logarithmic: true,
        },
        y: Axis {
            label: "",
            from: 0.0,
            to: 1.0,
            marks: (0..=5).map(|step| f64::from(step) / 5.0).collect(),
            logarithmic: false,
        },
        lines: lines.enumerate().map(line).collect(),
    }
    .svg()
}
