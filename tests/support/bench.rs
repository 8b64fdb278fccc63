//! Helpers of the benches on the real control plane.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::root;

/// The binary to measure: `bin`, or else that of the release build.
pub fn release_binary(bin: Option<PathBuf>) -> Result<PathBuf> {
    let bin = bin.unwrap_or_else(|| root().join("target/release/tautline"));
    ensure!(
        bin.is_file(),
        "{} is not there: cargo build --release -p tautline, or --bin FILE",
        bin.display()
    );
    Ok(bin)
}

/// Puts a table between the marks of `tests/bench/NAME` in docs/benchmarks.md.
pub fn write_to_docs(name: &str, table: &str) -> Result<()> {
    let mark = |what: &str| format!("<!-- tests/bench/{name} {what} -->");
    let (begin, end) = (mark("begins"), mark("ends"));
    let missing = |mark: &str| format!("docs/benchmarks.md: {mark} is missing");
    let page = root().join("docs/benchmarks.md");
    let text = std::fs::read_to_string(&page)?;
    let (before, rest) = text.split_once(&begin).with_context(|| missing(&begin))?;
    let (_, after) = rest.split_once(&end).with_context(|| missing(&end))?;
    std::fs::write(&page, format!("{before}{begin}\n{table}{end}{after}"))?;
    Ok(())
}
