use std::fmt::Write;

use super::{Class, Counted, Given, NodeCounts, Product, Report};
use crate::{
    gpu::{
        format,
        uses::{IDLE_BUSY_MILLI, IDLE_MEMORY_PERCENT},
    },
    table::table,
};

/// Names in a list.
const SHOWN: usize = 5;

impl Report {
    pub(super) fn text(&self) -> String {
        if self.nodes_with_cards == 0 {
            return self.counted.text();
        }
        let mut out = String::new();
        if !self.classes.is_empty() {
            let header = [
                "REQUEST",
                "MODE",
                "SHARE",
                "PODS",
                "STILL FIT",
                "CANNOT USE",
                "RUNS IN",
                "NOT IN",
            ];
            let rows = self.classes.iter().map(|c| c.row(self));
            out += &table(&header, rows);
            out += "\n";
        }
        let idle = self.idle_milli;
        _ = match self.fragmented_milli {
            Some(lost) => {
                let part = format::percent(lost as f64, idle as f64);
                let what = "of the idle GPU is not expected to be usable by the next request";
                writeln!(out, "{part} {what} (FGD's measure): {lost}m of {idle}m.")
            }
            None => writeln!(
                out,
                "{idle}m of GPU are idle; without requests their use is not known."
            ),
        };
        let header = [
            "PRODUCT",
            "MODE",
            "NODES",
            "CARDS",
            "IDLE",
            "FRAGMENTED",
            "PART",
        ];
        out += &table(&header, self.products.iter().map(Product::row));
        out += "\n";
        if let Some(given) = &self.given {
            out += &given.text();
        }
        out + &self.counted.text()
    }
}

impl Class {
    fn row(&self, report: &Report) -> Vec<String> {
        vec![
            self.text.clone(),
            self.lane.clone(),
            format::percent(self.share, 1.0),
            self.pods.len().to_string(),
            self.still_fit.to_string(),
            format!("{}m of {}m", self.unusable_milli, report.idle_milli),
            format!("{} of {}", self.nodes.runs, report.nodes_with_cards),
            self.nodes.others(),
        ]
    }
}

impl NodeCounts {
    /// "2 GPU short, 1 CPU short".
    fn others(&self) -> String {
        let all = [
            (self.gpu_short, "GPU short"),
            (self.cpu_short, "CPU short"),
            (self.no_such_model, "no such model"),
            (self.other_lane, "other mode"),
        ];
        let there = all.into_iter().filter(|(n, _)| *n > 0);
        let texts: Vec<String> = there.map(|(n, what)| format!("{n} {what}")).collect();
        texts.join(", ")
    }
}

impl Product {
    fn row(&self) -> Vec<String> {
        let part = |lost: i64| format::percent(lost as f64, self.idle_milli as f64);
        vec![
            self.product.clone(),
            self.lane.clone(),
            self.nodes.to_string(),
            self.cards.to_string(),
            format::milli(self.idle_milli),
            self.fragmented_milli.map(format::milli).unwrap_or_default(),
            self.fragmented_milli.map(part).unwrap_or_default(),
        ]
    }
}

impl Counted {
    fn text(&self) -> String {
        if self.pods == 0 && self.pods_not_counted.is_empty() {
            return "No pod requests GPUs, so no request is expected.\n".into();
        }
        let mut out = format!(
            "The expected requests are those of {} of the cluster; all count the same.",
            format::count(self.pods, "pod")
        );
        if self.pods_by_rule > 0 {
            let by = self.pods_by_rule;
            _ = write!(out, " {by} of them wait, and a rule states their request.");
        }
        out.push('\n');
        if self.classes_left_out > 0 {
            let what = match self.classes_left_out {
                1 => "1 rare kind of request is".to_owned(),
                n => format!("{n} rare kinds of requests are"),
            };
            _ = writeln!(out, "{what} left out, with at most 5% of the pods.");
        }
        let left = &self.pods_not_counted;
        if !left.is_empty() {
            _ = writeln!(
                out,
                "Not counted, because only the number of their GPUs is known: {}.",
                shown(left)
            );
        }
        out
    }
}

impl Given {
    fn text(&self) -> String {
        let part = format::percent(self.idle_milli as f64, self.milli as f64);
        let mut out = format!(
            "{part} of the GPU that pods have is idle at this moment: {}m of {}m.",
            self.idle_milli, self.milli
        );
        if !self.idle_pods.is_empty() {
            let (busy, pods) = (IDLE_BUSY_MILLI / 10, shown(&self.idle_pods));
            _ = write!(
                out,
                " Used under {IDLE_MEMORY_PERCENT}% of their memory and {busy}% of the time: {pods}."
            );
        }
        out + "\n"
    }
}

/// The first names, and the number of the others.
fn shown(names: &[String]) -> String {
    let first = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => first,
        n => format!("{first} and {n} more"),
    }
}
