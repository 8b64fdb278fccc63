use tautline_gpu_simulator::{PublishedCurves, RunResult, fill};

use crate::table::{grid, table};

/// Renders a line for each run, and with several seeds the means of each workload and policy below.
pub(super) fn runs(outcomes: &[RunResult], published: &PublishedCurves) -> String {
    let known = |o: &RunResult| {
        published
            .curve(&o.figures.workload, o.policy, o.figures.seed)
            .is_some()
    };
    let columns = Columns {
        published: outcomes.iter().any(known),
        churn: outcomes.iter().any(|o| o.figures.churn.is_some()),
    };
    let row = |o: &RunResult| columns.cells(o.figures.seed.to_string(), &[o], published);
    let mut out = grid(&columns.header("SEED"), outcomes.iter().map(row));
    let groups = groups(outcomes);
    if groups.len() < outcomes.len() {
        let row = |g: &Vec<&RunResult>| columns.cells(g.len().to_string(), g, published);
        out.push_str("\nMeans over seeds:\n");
        out.push_str(&grid(&columns.header("SEEDS"), groups.iter().map(row)));
    }
    out
}

/// Groups runs that differ only in their seed, in the order of their first run.
fn groups(outcomes: &[RunResult]) -> Vec<Vec<&RunResult>> {
    let mut groups: Vec<Vec<&RunResult>> = Vec::new();
    for outcome in outcomes {
        let same = |g: &&mut Vec<&RunResult>| {
            g[0].figures.workload == outcome.figures.workload && g[0].policy == outcome.policy
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(outcome),
            None => groups.push(vec![outcome]),
        }
    }
    groups
}

struct Columns {
    published: bool,
    churn: bool,
}

impl Columns {
    fn header(&self, seed: &'static str) -> Vec<&'static str> {
        let mut header = vec!["WORKLOAD", seed, "POLICY", "ALLOCATED@100"];
        if self.published {
            header.push("PUBLISHED");
        }
        header.push("ALLOCATED@130");
        if self.published {
            header.push("PUBLISHED");
        }
        header.extend(["FRAGMENTED@100", "DROPPED", "SECONDS"]);
        if self.churn {
            header.extend(["CHURN-OFFERED", "CHURN-ALLOCATED", "CHURN-PLACED"]);
        }
        header
    }

    /// Returns the cells with the means of some runs of one workload and policy.
    fn cells(&self, seed: String, some: &[&RunResult], published: &PublishedCurves) -> Vec<String> {
        let mean = |of: &dyn Fn(&RunResult) -> Option<f64>| {
            let all: Option<Vec<f64>> = some.iter().map(|o| of(o)).collect();
            let value = |all: Vec<f64>| all.iter().sum::<f64>() / all.len() as f64;
            all.map(value)
        };
        let theirs = |load: usize| {
            percent(mean(&|o| {
                published
                    .curve(&o.figures.workload, o.policy, o.figures.seed)
                    .and_then(|c| c[load])
            }))
        };
        let first = &some[0].figures;
        let mut cells = vec![
            first.workload.clone(),
            seed,
            first.policy.to_owned(),
            percent(mean(&|o| o.figures.allocation_at_100)),
        ];
        if self.published {
            cells.push(theirs(100));
        }
        cells.push(percent(mean(&|o| o.figures.allocation_at_130)));
        if self.published {
            cells.push(theirs(130));
        }
        cells.push(percent(mean(&|o| o.figures.fragmentation_at_100)));
        let dropped = mean(&|o| Some(o.figures.dropped as f64));
        cells.push(format!("{:.0}", dropped.unwrap_or_default()));
        let seconds = mean(&|o| Some(o.figures.seconds));
        cells.push(format!("{:.2}", seconds.unwrap_or_default()));
        if self.churn {
            cells.push(percent(mean(&|o| Some(o.figures.churn?.churn_offered))));
            cells.push(percent(mean(&|o| Some(o.figures.churn?.churn_allocation))));
            cells.push(percent(mean(&|o| Some(o.figures.churn?.churn_placed))));
        }
        cells
    }
}

fn percent(value: Option<f64>) -> String {
    value.map(|v| format!("{v:.2}")).unwrap_or_default()
}

/// Renders a line for each case and policy, with the number of further pods that fit.
pub(super) fn fills(fills: &[fill::Figures]) -> String {
    let difference = |f: &fill::Figures| Some(format!("{:+.1}", f.difference?));
    table(
        fills,
        &[
            ("CASE", &|f| f.case.clone()),
            ("POLICY", &|f| f.policy.to_owned()),
            ("GPU-NODES", &|f| f.nodes.to_string()),
            ("CARDS", &|f| f.cards.to_string()),
            ("MORE-PODS", &|f| format!("{:.1}", f.fit)),
            ("DIFFERENCE", &|f| difference(f).unwrap_or_default()),
            ("ALLOCATED", &|f| percent(Some(f.allocation_now))),
            ("WHEN-FULL", &|f| percent(Some(f.allocation_full))),
        ],
    )
}

#[cfg(test)]
mod tests {
    use tautline_gpu_placement::policy::PolicyName;
    use tautline_gpu_simulator::Contender;

    use super::*;

    fn outcome(policy: Contender, seed: u64, at_100: f64) -> RunResult {
        RunResult {
            policy,
            figures: tautline_gpu_simulator::Figures {
                workload: "default".into(),
                seed,
                policy: policy.as_str(),
                allocation_at_100: Some(at_100),
                allocation_at_130: None,
                fragmentation_at_100: Some(4.9),
                dropped: 2532,
                linked_pods: None,
                seconds: 0.157,
                churn: None,
            },
            allocation: Vec::new(),
            fragmentation: Vec::new(),
        }
    }

    #[test]
    fn runs_and_their_means() {
        let outcomes = [
            outcome(PolicyName::Tautline.into(), 42, 96.0),
            outcome(PolicyName::Fgd.into(), 42, 95.14),
            outcome(PolicyName::Tautline.into(), 43, 97.0),
            outcome(PolicyName::Fgd.into(), 43, 95.16),
        ];
        insta::assert_snapshot!(runs(&outcomes, &PublishedCurves::default()));
    }

    #[test]
    fn cases_and_their_difference() {
        let figures = |case: &str, difference| fill::Figures {
            case: case.into(),
            policy: "tautline",
            nodes: 3,
            cards: 8,
            fit: 12.5,
            difference,
            allocation_now: 40.0,
            allocation_full: 97.25,
        };
        insta::assert_snapshot!(fills(&[
            figures("now", None),
            figures("add=1xh200x8", Some(8.0)),
        ]));
    }
}
