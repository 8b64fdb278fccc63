//! Implements `tautline test`, which runs cases with the expected place of a pod by the real
//! extender and the real providers on loopback.

mod cluster;
mod expect;
mod file;
mod runner;
mod table;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Error, Result, bail};
use serde_json::json;
use tautline_core::{
    text::sanitize,
    trust::{OWN_NAMESPACE, TrustedNamespaces},
};
use tautline_report::Report;
use tautline_runtime::{
    input_files::InputFiles,
    manifest_files::{self, ReadOptions},
};

use self::{file::TestFile, runner::CaseRun};
use crate::{
    EXIT_ERROR,
    manifests::{self, located},
    output::{self, ReportOutput},
    provider_args::TrustArgs,
    table::plain,
};

#[derive(clap::Args)]
#[command(
    after_help = "A test file, in the folder of the manifests or below:\n\n  \
    manifests: [..]              # files and folders, from this file on, in its repository [default: its folder]\n  \
    namespace: vision            # of names and objects without one [default: default]\n  \
    costs:                       # in place of the provider of a rule; a text is a reason code\n    \
      carbon: {north-1: 10, north-2: 40, south-1: OverLimit}\n  \
    cases:\n  \
    - name: the nearest card that runs the model\n    \
      pod: detector-0            # of the manifests, or its fields; or workload: Deployment/detector\n    \
      expect: {node: north-2, scores: {south-1: 3}}\n  \
    - name: no GPU is near enough\n    \
      pod: tracker-0\n    \
      expect: {pending: true, reasons: {south-1: latency/OverLimit}, counts: {latency/OverLimit: 3}}\n\n\
    The cases of a file run in order on one cluster: a pod takes its room from those after it. With\n\
    fresh: true a case begins with the cluster of the manifests again.\n\n\
    Exit codes: 0 all cases pass, 1 a case fails, 2 a file cannot be used.\n\n\
    Examples:\n  tautline test examples\n  tautline test examples/edge-inference --filter detector\n  \
    tautline test examples -o junit > report.xml"
)]
pub(crate) struct Args {
    /// Test files, and folders: of these, all files below with names that end in
    /// tautline-test.yaml
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,
    /// Only cases with this in their name; the pods of earlier cases still take their room
    #[arg(long, value_name = "NAME")]
    filter: Option<String>,
    #[command(flatten)]
    trust: TrustArgs,
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportOutput,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let trusted = args.trust.trusted_namespaces(OWN_NAMESPACE);
    let runs = match run_all(&args.paths, args.filter.as_deref(), &trusted).await? {
        Ok(runs) => runs,
        Err(faults) => {
            for fault in faults {
                let (first, rest) = fault.split_once('\n').unwrap_or((&fault, ""));
                note!("error: {}", plain(first));
                for line in rest.lines() {
                    note!("{}", sanitize(line, usize::MAX));
                }
            }
            return Ok(ExitCode::from(EXIT_ERROR));
        }
    };
    let report = report(&runs);
    let json = json!({"suite": SUITE, "cases": runs});
    let (table, failures) = (|| table::text(&runs), || table::failures(&runs));
    output::print_report(args.output, &report, &json, table, failures)
}

const SUITE: &str = "tautline test";
/// The end of a command that renders manifests, for files whose cases name them.
const RECEIVE: &str = "> rendered.yaml, and name that file in manifests";

fn options(file: &TestFile) -> ReadOptions {
    ReadOptions {
        namespace: Some(file.namespace.clone()),
        ..ReadOptions::default()
    }
}

fn report(runs: &[CaseRun]) -> Report {
    Report {
        suite: SUITE.to_owned(),
        cases: runs.iter().map(|run| run.case.clone()).collect(),
    }
}

/// Runs the cases of these paths. The inner error has the faults of all files, if a file cannot be
/// used.
async fn run_all(
    paths: &[PathBuf],
    filter: Option<&str>,
    trusted: &TrustedNamespaces,
) -> Result<Result<Vec<CaseRun>, Vec<String>>> {
    let mut ready = Vec::new();
    let (mut faults, mut warnings) = (Vec::new(), BTreeSet::new());
    for TestPath { path, root } in test_files(paths)? {
        let named = || path.display().to_string();
        let mut inputs = InputFiles::below(&root).with_context(named)?;
        let text = inputs
            .named(&path)
            .map_err(Error::msg)
            .with_context(named)?;
        let read = file::read(&path, &text).and_then(|file: TestFile| {
            let manifests =
                manifests::read(&file.manifests(&path), &mut inputs, &options(&file))
                    .map_err(|e| vec![format!("{}: {}", path.display(), located(e, RECEIVE))])?;
            warnings.extend(manifests.warnings.iter().map(ToString::to_string));
            warnings.extend(manifests.skipped.iter().map(|s| s.line(RECEIVE)));
            cluster::Cluster::new(manifests.items).prepare(&path, &text, file)
        });
        match read {
            Ok(file) => ready.push(file),
            Err(more) => faults.extend(more),
        }
    }
    if !faults.is_empty() {
        return Ok(Err(faults));
    }
    for warning in warnings {
        note!("{}", plain(&warning));
    }
    let mut runs = Vec::new();
    for file in &ready {
        runs.extend(runner::run(file, filter, trusted).await?);
    }
    if let Some(filter) = filter
        && runs.is_empty()
    {
        bail!("no case has {filter:?} in its name; correct --filter");
    }
    Ok(Ok(runs))
}

/// A test file, and the folder that its manifests must be in, since a stranger may have written it.
struct TestPath {
    path: PathBuf,
    root: PathBuf,
}

/// Returns the files of these paths, each once; the files below a folder are sorted by name.
fn test_files(paths: &[PathBuf]) -> Result<Vec<TestPath>> {
    let mut files = Vec::<TestPath>::new();
    for path in paths {
        let mut below = Vec::new();
        if path.is_dir() {
            collect(path, &mut below)?;
        } else {
            below.push(path.clone());
        }
        if below.is_empty() {
            bail!(
                "{}: holds no tests, which are files with names that end in tautline-test.yaml",
                path.display()
            );
        }
        below.sort();
        for file in below {
            if files.iter().all(|known| known.path != file) {
                let root = manifests_root(path, &file, Path::new("."));
                files.push(TestPath { path: file, root });
            }
        }
    }
    Ok(files)
}

/// Returns the folder that the manifests of a test file must be in: the innermost repository around
/// the file if it is in the repository of `here`; else the path that the user named if it is a
/// folder, or the folder of the file.
fn manifests_root(named: &Path, file: &Path, here: &Path) -> PathBuf {
    let repository = |folder: &Path| {
        let folder = folder.canonicalize().ok()?;
        let mut around = folder.ancestors();
        Some(around.find(|f| f.join(".git").exists())?.to_owned())
    };
    let folder = file::folder_of(file);
    match (repository(folder), repository(here)) {
        (Some(own), Some(here)) if own.starts_with(&here) => own,
        _ if named.is_dir() => named.to_owned(),
        _ => folder.to_owned(),
    }
}

/// Collects the test files below a folder, but not those in hidden folders or behind links to
/// folders.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let named = || folder.display().to_string();
    for entry in fs::read_dir(folder).with_context(named)? {
        let entry = entry.with_context(named)?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        let path = entry.path();
        if entry.file_type().with_context(named)?.is_dir() {
            if !hidden {
                collect(&path, files)?;
            }
        } else if manifest_files::is_test_file(&path) {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "policy_test/tests.rs"]
mod tests;
