//! A provider whose costs are a function of the time of day: after a kill, a hang or a restart
//! its answers are the same, and the checker computes them too. It logs each answer before it
//! sends it.

use std::{
    fs::File,
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use parking_lot::Mutex;
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider, testkit,
};

/// Time between changes of the costs.
pub const SLOT_MILLIS: u64 = 20_000;
/// Percentage of nodes refused in each slot.
const REFUSED: u64 = 30;

#[derive(clap::Args, Clone)]
pub struct Args {
    #[arg(long)]
    seed: u64,
    /// Providers of different names have different costs
    #[arg(long)]
    name: char,
    #[arg(long)]
    listen: std::net::SocketAddr,
    /// Log of the answers
    #[arg(long)]
    answers: PathBuf,
}

pub fn now_millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// The cost of a node in a slot by provider `name`; below 0: unusable.
pub fn cost(seed: u64, name: char, node: &str, slot: u64) -> i64 {
    let mut hasher = DefaultHasher::new();
    (seed, name, node, slot).hash(&mut hasher);
    let drawn = hasher.finish();
    match drawn % 100 < REFUSED {
        true => -1,
        false => (drawn >> 32) as i64 % 50,
    }
}

struct Clock {
    args: Args,
    answers: Mutex<File>,
}

/// Answers until the process is killed.
pub async fn serve(args: Args) -> Result<()> {
    let file = File::options()
        .create(true)
        .append(true)
        .open(&args.answers)?;
    let config = tautline_sdk::Config {
        listen: args.listen,
        ..testkit::loopback()
    };
    let clock = Clock {
        args,
        answers: Mutex::new(file),
    };
    let _running = testkit::start_with(clock, config).await?;
    std::future::pending().await
}

impl RuleProvider for Clock {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let now = now_millis();
        let slot = now / SLOT_MILLIS;
        let mut answer = CostAnswer::default();
        for node in request.eligible_nodes {
            match cost(self.args.seed, self.args.name, &node, slot) {
                cost @ 0.. => answer.usable(node, cost, ""),
                _ => answer.unusable(node, "Refused", "in this slot", false),
            }
        }
        let uid = request.workload.unwrap_or_default().uid;
        let line = format!("{uid} {now} {slot}\n");
        let written = self.answers.lock().write_all(line.as_bytes());
        written.map_err(|e| ProviderError::Internal(e.to_string()))?;
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::compliant("as asked for"))
    }
}
