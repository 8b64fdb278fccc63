//! What the benchmarks share: figures and where they are written, roles of a program as child
//! processes; for those on the real control plane [`cluster`].

pub mod cluster;

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::Value;
use tautline_tests::root;
use tokio::io::AsyncReadExt;

/// Sorted durations.
pub struct Times(Vec<Duration>);

impl Times {
    pub fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// 0 if there are none; of 1.0 the longest.
    pub fn quantile(&self, q: f64) -> Duration {
        let at = (self.0.len() as f64 * q) as usize;
        let last = self.0.len().saturating_sub(1);
        self.0.get(at.min(last)).copied().unwrap_or_default()
    }

    pub fn millis(&self, q: f64) -> f64 {
        self.quantile(q).as_secs_f64() * 1e3
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }
}

// Where figures go besides standard output. A doc comment would become the help of each bench.
#[derive(clap::Args)]
pub struct Output {
    /// Writes the table into docs/benchmarks.md too
    #[arg(long)]
    docs: bool,
    /// Writes the figures into this file too
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Output {
    /// Prints the table of a benchmark, and writes it and the figures as requested.
    pub fn write(&self, bench: &str, table: &str, figures: &Value) -> Result<()> {
        print!("{table}");
        if let Some(file) = &self.json {
            fs::write(file, format!("{figures:#}\n"))?;
        }
        if self.docs {
            write_to_page("docs/benchmarks.md", bench, table)?;
        }
        Ok(())
    }
}

/// Puts lines between the marks of `tests/bench/BENCH` in a page of the repository.
pub fn write_to_page(page: &str, bench: &str, lines: &str) -> Result<()> {
    let mark = |what: &str| format!("<!-- tests/bench/{bench} {what} -->");
    let (begin, end) = (mark("begins"), mark("ends"));
    let missing = |mark: &str| format!("{page}: {mark} is missing");
    let path = root().join(page);
    let text = fs::read_to_string(&path).with_context(|| page.to_owned())?;
    let (before, rest) = text.split_once(&begin).with_context(|| missing(&begin))?;
    let (_, after) = rest.split_once(&end).with_context(|| missing(&end))?;
    fs::write(&path, format!("{before}{begin}\n{lines}{end}{after}"))?;
    Ok(())
}

/// A table of two columns.
pub fn table(head: [&str; 2], rows: impl IntoIterator<Item = (String, String)>) -> String {
    let line = |(left, right): (String, String)| format!("| {left} | {right} |\n");
    let head = line(head.map(str::to_owned).into()) + "|---|---|\n";
    rows.into_iter().fold(head, |table, row| table + &line(row))
}

/// The name of a node, as long as a cloud node's.
pub fn node_name(i: usize) -> String {
    format!(
        "ip-10-{}-{}-{}.eu-central-1.compute.internal",
        i >> 16,
        (i >> 8) & 255,
        i & 255
    )
}

/// A child that runs this program with other arguments. It prints its port when it is ready, and
/// ends with [`parent_gone`].
pub struct Role {
    child: Child,
    pub port: u16,
}

impl Role {
    pub fn start(args: &[impl AsRef<OsStr>]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().context("no output")?;
        let line = BufReader::new(out).lines().next();
        let line = line.context("the role ended early")??;
        let port = line.trim().parse()?;
        Ok(Self { child, port })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // Closes its standard input first.
        _ = self.child.wait();
    }
}

/// Completes when the parent closes the standard input.
pub async fn parent_gone() {
    let mut byte = [0u8; 1];
    _ = tokio::io::stdin().read(&mut byte).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_is_one_of_the_times() {
        let times = |millis: &[u64]| {
            let times = millis.iter().map(|ms| Duration::from_millis(*ms));
            Times::new(times.collect())
        };
        let three = times(&[30, 10, 20]);
        assert_eq!([0.0, 0.5, 1.0].map(|q| three.millis(q)), [10.0, 20.0, 30.0]);
        assert_eq!(times(&[]).quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn table_has_a_head_and_rows() {
        let rows = [("memory".to_owned(), "7 MB".to_owned())];
        let expected = "| what | seen |\n|---|---|\n| memory | 7 MB |\n";
        assert_eq!(table(["what", "seen"], rows), expected);
    }
}
