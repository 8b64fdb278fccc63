//! The table: our figures and the reference's.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::scores::Scores;

/// A method's mean figures.
pub struct Line {
    pub world: String,
    pub k: usize,
    pub method: String,
    pub seeds: usize,
    pub figures: Figures,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub median: f64,
    pub p90: f64,
    pub near: f64,
    pub within_1ms: f64,
    pub top16_1ms: f64,
    pub top8_tenth: f64,
    pub precision: Option<f64>,
    pub recall: Option<f64>,
    /// Part of pairs measured for precision and recall.
    pub measured: Option<f64>,
    /// If precision and recall are by prediction alone: the part of pairs between half and twice
    /// the limit, and precision and recall with these measured.
    pub band: Option<[f64; 3]>,
    /// Part of pairs whose true value is within the error bar.
    pub held: Option<f64>,
}

impl Figures {
    /// The means. Precision and recall are with measurements near the limit for recorded worlds,
    /// by prediction alone for clusters.
    pub fn mean(scores: &[Scores], recorded: bool, bars: bool) -> Self {
        let mean = |of: &dyn Fn(&Scores) -> f64| {
            scores.iter().map(of).sum::<f64>() / scores.len().max(1) as f64
        };
        let (precision, recall) = match recorded {
            true => (mean(&|s| s.band.1), mean(&|s| s.band.2)),
            false => (mean(&|s| s.feasible[1].0), mean(&|s| s.feasible[1].1)),
        };
        Self {
            median: mean(&|s| s.median),
            p90: mean(&|s| s.p90),
            near: mean(&|s| s.near),
            within_1ms: mean(&|s| s.within_1ms),
            top16_1ms: mean(&|s| s.top16_1ms),
            top8_tenth: mean(&|s| s.top8_tenth),
            precision: Some(precision),
            recall: Some(recall),
            measured: recorded.then(|| mean(&|s| s.band.0)),
            band: (!recorded).then(|| {
                [
                    mean(&|s| s.band.0),
                    mean(&|s| s.band.1),
                    mean(&|s| s.band.2),
                ]
            }),
            held: bars.then(|| mean(&|s| s.held)),
        }
    }
}

/// The reference's line for a world and `k`; `None`: it has none.
///
/// # Errors
/// The file cannot be read.
pub fn reference(data: &Path, world: &str, k: usize) -> Result<Option<Line>> {
    let path = data.join("reference.csv");
    let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let rows = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    for row in rows {
        let cells: Vec<&str> = row.split(',').collect();
        if cells.len() != 12 || cells[0] != world || cells[1] != k.to_string() {
            continue;
        }
        let number = |at: usize| cells[at].parse::<f64>().ok();
        let needed = |at: usize| number(at).with_context(|| format!("reference.csv: {row}"));
        return Ok(Some(Line {
            world: world.into(),
            k,
            method: format!("reference, {}", cells[2]),
            seeds: needed(3)? as usize,
            figures: Figures {
                median: needed(4)?,
                p90: needed(5)?,
                near: needed(6)?,
                within_1ms: needed(7)?,
                top16_1ms: needed(8)?,
                top8_tenth: needed(9)?,
                precision: number(10),
                recall: number(11),
                measured: None,
                band: None,
                held: None,
            },
        }));
    }
    Ok(None)
}

pub const HEAD: &str = "\
| world | k | method | seeds | median | p90 | near | <= 1 ms | top-16 | top-8, 10 % | precision / recall | measured | bar holds |
|---|---|---|---|---|---|---|---|---|---|---|---|---|";

impl Line {
    pub fn markdown(&self) -> String {
        let f = &self.figures;
        let part = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.3}"));
        let feasible = match (f.precision, f.recall) {
            (Some(p), Some(r)) => format!("{p:.3} / {r:.3}"),
            _ => "-".into(),
        };
        let measured = match f.band {
            Some([measured, p, r]) => format!("{measured:.3}: {p:.3} / {r:.3}"),
            None => part(f.measured),
        };
        format!(
            "| {} | {} | {} | {} | {:.4} | {:.3} | {:.3} | {:.3} | {:.3} | {:.3} | {feasible} | {measured} | {} |",
            self.world,
            self.k,
            self.method,
            self.seeds,
            f.median,
            f.p90,
            f.near,
            f.within_1ms,
            f.top16_1ms,
            f.top8_tenth,
            part(f.held),
        )
    }
}
