//! The console: time of its pages, and its memory.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use tautline_tests::{
    control_plane::ControlPlane,
    eventually, loopback,
    process::{Process, free_port},
};

/// Of the first lists.
const PATIENCE: Duration = Duration::from_secs(300);
const PAGES: [&str; 6] = [
    "/",
    "/decisions",
    "/bindings",
    "/gpu",
    "/latency",
    "/policies",
];

pub struct Console {
    /// From the start until the lists are complete.
    pub first_sync: Duration,
    /// The first request of `/` after that.
    pub first_page: Duration,
    /// Slowest page, and the largest in bytes, of a second request of each.
    pub slowest: (&'static str, Duration),
    pub largest: (&'static str, usize),
    pub resident: u64,
    pub peak: u64,
}

/// Starts `tautline ui` and asks for each page.
pub async fn measure(plane: &ControlPlane, bin: &Path) -> Result<Console> {
    let port = free_port()?;
    let file = plane.kubeconfig("admin");
    let dir = file.parent().context("the kubeconfig has no folder")?;
    let kubeconfig = file.display().to_string();
    let listen = format!("127.0.0.1:{port}");
    let args = ["ui", "--kubeconfig", &kubeconfig, "--listen", &listen].map(str::to_owned);
    let start = Instant::now();
    let process = Process::start("console", bin, &args, dir)?;
    let get = async |path: &str| loopback::get(&format!("http://{listen}{path}")).await;
    eventually(
        "the console has all lists",
        PATIENCE,
        async || {
            // Not the overview, whose first request is measured.
            let (status, page) = get("/policies").await.ok()?;
            (status == 200 && !page.contains("Not complete yet")).then_some(())
        },
        async || process.tail(),
    )
    .await;
    let first_sync = start.elapsed();
    let begun = Instant::now();
    let (status, _) = get("/").await?;
    let first_page = begun.elapsed();
    ensure!(status == 200, "/ answered {status}");
    let (mut slowest, mut largest) = (("", Duration::ZERO), ("", 0));
    for path in PAGES {
        get(path).await?;
        let begun = Instant::now();
        let (status, page) = get(path).await?;
        let took = begun.elapsed();
        ensure!(status == 200, "{path} answered {status}: {page}");
        eprintln!("  {path}: {took:.1?}, {} bytes", page.len());
        if took > slowest.1 {
            slowest = (path, took);
        }
        if page.len() > largest.1 {
            largest = (path, page.len());
        }
    }
    Ok(Console {
        first_sync,
        first_page,
        slowest,
        largest,
        resident: process.resident_bytes(),
        peak: process.peak_bytes(),
    })
}
