use std::{collections::HashMap, path::Path};

use tautline_gpu_placement::policy::PolicyName;

use crate::{
    curve::{Curve, MAX_LOAD_PERCENT},
    error::Error,
    files::{self, Table},
};

/// Published curves of allocation, by workload, policy and seed.
#[derive(Clone, Debug, Default)]
pub struct PublishedCurves(HashMap<(String, PolicyName, u64), Curve>);

impl PublishedCurves {
    /// Reads `expected/analysis_allo_discrete.csv` in the trace's folder; empty without this file.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let path = dir.join("expected/analysis_allo_discrete.csv");
        if !files::exists(&path) {
            return Ok(Self::default());
        }
        let mut all = HashMap::new();
        let table = Table::read(&path)?;
        for row in table.rows() {
            let policy = match row.text("sc_policy")? {
                "04-GpuPacking" => PolicyName::Packing,
                "05-BestFit" => PolicyName::BestFit,
                "06-FGD" => PolicyName::Fgd,
                _ => continue,
            };
            let workload = row.text("workload")?;
            let workload = workload.strip_prefix("openb_pod_list_").unwrap_or(workload);
            let seed = row.number("seed", "a seed", 0, i64::MAX)?;
            let column = |c: usize| row.optional(&c.to_string()).parse().ok();
            let curve = (0..=MAX_LOAD_PERCENT).map(column).collect();
            all.insert((workload.to_owned(), policy, seed as u64), curve);
        }
        Ok(Self(all))
    }

    /// The curve of a workload, policy and seed; `None`: it is not published.
    pub fn curve(&self, workload: &str, policy: PolicyName, seed: u64) -> Option<&Curve> {
        self.0.get(&(workload.to_owned(), policy, seed))
    }
}
