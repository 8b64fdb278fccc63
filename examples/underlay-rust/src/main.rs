//! `tautline-example-underlay --offer n1=5`: an underlay controller for tests and demos.

use std::{error::Error, net::SocketAddr, path::PathBuf, time::Duration};

use clap::Parser;
use tautline_example_underlay::{Underlay, serve};
use tokio::net::TcpListener;

#[derive(Parser)]
struct Args {
    /// The address to listen on.
    #[arg(long, default_value = "[::]:9999")]
    listen: SocketAddr,
    /// A node that a path can make usable, and its cost.
    #[arg(long = "offer", value_name = "NODE=COST", value_parser = offer)]
    offers: Vec<(String, i64)>,
    /// Lifetime of an offer.
    #[arg(long, default_value = "30s", value_name = "SECONDS", value_parser = seconds)]
    ttl: Duration,
    /// A journal to restore allocations from after a restart; created if missing.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
}

fn offer(text: &str) -> Result<(String, i64), String> {
    let (node, cost) = text.rsplit_once('=').ok_or("write NODE=COST")?;
    let cost = cost.parse().map_err(|e| format!("cost {cost:?}: {e}"))?;
    Ok((node.to_owned(), cost))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text).parse();
    number
        .map(Duration::from_secs)
        .map_err(|e| format!("{e}; write seconds, as in 30s"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let underlay = Underlay::new(args.offers, args.ttl);
    if let Some(path) = &args.state {
        underlay
            .open_journal(path)
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let listener = TcpListener::bind(args.listen).await?;
    println!("listening on {}", listener.local_addr()?);
    tokio::select! {
        ended = serve(listener, underlay) => Ok(ended?),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}
