//! `cargo run --release -p tautline-bench-extender`: what one filter and one
//! prioritize cost, with 500 and 5,000 node names; ungoverned, and governed by
//! two rules whose providers are processes on loopback. Three floors are measured in
//! the same run: servers that read the request and answer nothing, that send all names
//! back, and that ask the two providers and read no answer.
//!
//! Client, server and providers are processes of their own, so that the CPU time
//! is the server's alone. The client keeps to one core and the server to another:
//! where they share one, which Linux at times lets them, a small request costs a
//! third. Prints a Markdown table, and what an index of 150,000 pods holds in memory.

mod asking;
mod compare;
mod noop;
mod process;
mod servers;

use anyhow::{Result, bail};
use tokio::runtime::Builder;

use crate::{asking::Providers, process::Core};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["noop", port, shortlist] => noop::serve(port, shortlist, None),
        ["noop", port, shortlist, one, other] => noop::serve(port, shortlist, Some([one, other])),
        role => play(role),
    }
}

fn play(role: &[&str]) -> Result<()> {
    let mut runtime = match role {
        // The providers of this benchmark alone are not measured.
        ["provider"] => Builder::new_multi_thread(),
        // As `tautline extender` runs.
        _ => Builder::new_current_thread(),
    };
    if let [
        "reading-floor" | "echoing-floor" | "asking-floor" | "extender",
        ..,
    ] = role
    {
        process::keep_to(Core::Last)?;
    }
    let runtime = runtime.enable_all().build()?;
    runtime.block_on(played(role))
}

async fn played(role: &[&str]) -> Result<()> {
    match role {
        [] => compare::run().await,
        ["reading-floor"] => servers::floor().await,
        ["echoing-floor"] => servers::noop_floor(0, None).await,
        ["asking-floor", one, other] => {
            servers::noop_floor(64, Some(Providers::at([*one, *other])?)).await
        }
        ["provide", port, admin] => asking::provide(port, admin).await,
        ["provider"] => servers::provider().await,
        ["memory"] => servers::memory(),
        ["extender", ports @ ..] => servers::extender(ports).await,
        other => bail!("unknown role {other:?}; run without arguments"),
    }
}
