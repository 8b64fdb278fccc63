//! Compares the simulator with the real extender and gpu-slice provider.

mod live_servers;
mod trace_objects;

use std::{fs, num::NonZeroUsize, path::Path};

use serde_json::Value;
use tautline_gpu_placement::policy::PolicyName;
use tautline_gpu_simulator::{Contender, Experiment, RunResult, Ties, Trace};

/// A trace of a dozen nodes and shapes of every sort.
fn mixed(dir: &Path) {
    fs::create_dir(dir.join("pods")).unwrap();
    let mut nodes = "sn,cpu_milli,memory_mib,gpu,model\n".to_owned();
    for i in 0..12 {
        let (cards, model) = [(2, "T4"), (8, "G2"), (1, "A10"), (4, "T4")][i % 4];
        nodes += &format!(
            "n-{i:02},{},{},{cards},{model}\n",
            cards * 12_000,
            cards * 65_536
        );
    }
    let shapes = [
        "4000,8192,1,250,",
        "8000,16384,1,810,",
        "2000,4096,0,0,",
        "6000,8192,1,460,A10|T4",
        "16000,32768,2,1000,",
        "10000,8192,1,1000,G2",
    ];
    let mut pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n".to_owned();
    for i in 0..60 {
        pods += &format!("p-{i:02},{}\n", shapes[i % shapes.len()]);
    }
    fs::write(dir.join("nodes.csv"), nodes).unwrap();
    fs::write(dir.join("pods/default.csv"), pods).unwrap();
}

fn experiment(dir: &Path, ties: Ties) -> Experiment {
    let policies = [PolicyName::Tautline, PolicyName::Fgd]
        .map(Contender::from)
        .to_vec();
    let trace = Trace::open(dir).unwrap();
    Experiment::prepare(trace, &["default".to_owned()], &[42], policies, ties, None).unwrap()
}

/// The figures without the durations.
fn figures(runs: &[RunResult]) -> Vec<Value> {
    let mut all: Vec<Value> = runs
        .iter()
        .map(|run| serde_json::to_value(&run.figures).unwrap())
        .collect();
    for run in &mut all {
        run.as_object_mut().unwrap().remove("seconds");
    }
    all
}

/// The provider's costs differ between nodes, so the best node is unique and
/// kube-scheduler's random choice among equals does not matter.
#[tokio::test(flavor = "multi_thread")]
async fn real_servers_place_as_the_simulator_does_however_ties_are_broken() {
    let dir = tempfile::tempdir().unwrap();
    mixed(dir.path());
    let simulated = experiment(dir.path(), Ties::First).run(NonZeroUsize::MIN, &|_| ());
    assert!(simulated[1].figures.dropped > 0, "{simulated:?}");
    for ties in [Ties::First, Ties::Random] {
        let placed = live_servers::run(&experiment(dir.path(), ties)).await;
        assert_eq!(
            figures(&placed.unwrap()),
            figures(&simulated),
            "ties: {ties:?}"
        );
    }
}
