//! Kubernetes' own code for comparison: the programs of `tests/oracle`. Each answers a JSON
//! line with a JSON line; their sources describe the format.

use std::{
    io::{BufRead, BufReader, BufWriter, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{LazyLock, mpsc},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::root;

/// Time for one answer; most take milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that runs until this value is dropped.
pub struct Oracle {
    child: Child,
    requests: mpsc::Sender<String>,
    answers: mpsc::Receiver<String>,
}

impl Oracle {
    /// Starts `cel`, `merge` or `policy`, built if need be.
    pub fn start(program: &str, arguments: &[String]) -> Result<Self> {
        let path = binaries()?.join(program);
        let mut child = Command::new(&path)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} does not start", path.display()))?;
        let (requests, lines) = mpsc::channel::<String>();
        let (sender, answers) = mpsc::channel();
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = child.stdout.take().context("no stdout")?;
        // The program ends with its stdin, and both threads with the program.
        thread::spawn(move || {
            let mut stdin = BufWriter::new(stdin);
            while let Ok(line) = lines.recv() {
                if writeln!(stdin, "{line}")
                    .and_then(|()| stdin.flush())
                    .is_err()
                {
                    return;
                }
            }
        });
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            requests,
            answers,
        })
    }

    /// Its answers, in the order of the requests.
    pub fn ask(&self, requests: &[Value]) -> Result<Vec<Value>> {
        for request in requests {
            self.requests.send(request.to_string())?;
        }
        let answer = |request: &Value| {
            let line = self
                .answers
                .recv_timeout(PATIENCE)
                .with_context(|| format!("no answer to {request}"))?;
            Ok(serde_json::from_str(&line)?)
        };
        requests.iter().map(answer).collect()
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn binaries() -> Result<PathBuf> {
    static BUILT: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
        let script = root().join("tests/oracle/build");
        output(&mut Command::new(script))
            .map(PathBuf::from)
            .map_err(|e| format!("{e:#}"))
    });
    BUILT.clone().map_err(anyhow::Error::msg)
}

/// The OpenAPI v3 document of a group and version that Kubernetes' sources hold:
/// `api/v1`, `apis/apps/v1`.
pub fn openapi(group_version: &str) -> Result<PathBuf> {
    let module = output(
        Command::new("go")
            .args(["list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"])
            .env("GOWORK", "off")
            .current_dir(root().join("tests/oracle")),
    )?;
    let name = format!("{}_openapi.json", group_version.replace('/', "__"));
    Ok(PathBuf::from(module).join("api/openapi-spec/v3").join(name))
}

fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{command:?} does not run; it needs Go"))?;
    if !output.status.success() {
        bail!("{command:?} failed");
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
