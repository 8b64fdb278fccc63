//! `cargo run --release -p tautline-bench --bin tautline-bench-extender`: the cost of a filter and
//! a prioritize with 500 and 5,000 node names, of an ungoverned pod and of one governed by two rules
//! with providers on loopback. Three baselines run interleaved with it: servers that read the
//! request and answer nothing, that return all names, and that call the two providers without
//! parsing their answers.
//!
//! Client, server and providers are separate processes, so the CPU time is only the server's.
//! Client and server are pinned to different cores: on a shared core, which Linux sometimes
//! chooses, a small request costs a third. Prints a Markdown table, and the memory of an index
//! of 150,000 pods.

mod compare;
mod noop;
mod process;
mod providers;
mod servers;

use anyhow::{Result, bail};
use tokio::runtime::Builder;

use crate::{process::Core, providers::Providers};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["noop", port, shortlist] => noop::serve(port, shortlist, None),
        ["noop", port, shortlist, one, other] => noop::serve(port, shortlist, Some([one, other])),
        role => run(role),
    }
}

fn run(role: &[&str]) -> Result<()> {
    let mut runtime = match role {
        // Providers are not measured.
        ["provider"] => Builder::new_multi_thread(),
        // As `tautline extender` runs.
        _ => Builder::new_current_thread(),
    };
    if let ["reading" | "echoing" | "calling" | "extender", ..] = role {
        process::pin_to(Core::Last)?;
    }
    let runtime = runtime.enable_all().build()?;
    runtime.block_on(run_role(role))
}

async fn run_role(role: &[&str]) -> Result<()> {
    match role {
        [] => compare::run().await,
        ["reading"] => servers::reading().await,
        ["echoing"] => servers::noop(0, None).await,
        ["calling", one, other] => servers::noop(64, Some(Providers::at([*one, *other])?)).await,
        ["provide", port, admin] => providers::serve(port, admin).await,
        ["provider"] => servers::provider().await,
        ["memory"] => {
            servers::memory();
            Ok(())
        }
        ["extender", ports @ ..] => servers::extender(ports).await,
        other => bail!("unknown role {other:?}; run without arguments"),
    }
}
