//! Implements `tautline check policy`, which shows how a policy of GPU sharing changes pods, and
//! why.

use std::{fmt::Write, path::PathBuf, process::ExitCode};

use anyhow::{Result, anyhow, bail};
use serde::Serialize;
use serde_json::{Value, json};
use tautline_api::manifest;
use tautline_gpu_sharing::{Decision, Mutation, Names, Policy, decide};
use tautline_runtime::input_files::InputFiles;

use super::documents::{self, Document, Effect};
use crate::{
    admission::GpuNameArgs,
    exit_code,
    output::{self, Output},
    table::plain,
};

const KEY: &str = "policy.json";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The policy: a ConfigMap with policy.json in it, or policy.json itself
    #[arg(short, long, value_name = "PATH")]
    file: PathBuf,
    /// Pods, or workloads with a pod template
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pod: Vec<PathBuf>,
    /// Namespace of what names none
    #[arg(short, long, value_name = "NS", default_value = "default")]
    namespace: String,
    #[command(flatten)]
    gpus: GpuNameArgs,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    rules: usize,
    bad_rules: Vec<String>,
    warnings: Vec<String>,
    pods: Vec<Checked>,
}

#[derive(Serialize)]
struct Checked {
    pod: String,
    file: PathBuf,
    document: usize,
    outcome: Effect,
    why: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    change: Option<Change>,
    #[serde(skip)]
    title: String,
}

#[derive(Serialize)]
struct Change {
    ratio: i64,
    containers: Vec<Container>,
    patch: Vec<Value>,
}

#[derive(Serialize)]
struct Container {
    name: String,
    cards: i64,
    shares: i64,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let names = args.gpus.names()?;
    let policy = policy(args)?;
    let mut pods = Vec::new();
    for document in documents::read(&args.pod, "--pod")? {
        match pod(&document) {
            Some(pod) => {
                let namespace = document.namespace().unwrap_or(&args.namespace);
                let decision = decide(&names, Some(&policy), namespace, &pod);
                pods.push(Checked::of(&document, decision));
            }
            None => note!("left out: {}", plain(&document.to_string())),
        }
    }
    if pods.is_empty() && !args.pod.is_empty() {
        bail!("no object is a pod or has a pod template; name a file with one by --pod");
    }

    let report = Report {
        rules: policy.rules(),
        bad_rules: policy.bad_rules().iter().map(ToString::to_string).collect(),
        warnings: policy.warnings().to_vec(),
        pods,
    };
    output::print(args.output, &report, |r| r.text(&names))?;
    let refused = report.pods.iter().any(|p| p.outcome == Effect::Refused);
    Ok(exit_code(!refused && report.bad_rules.is_empty()))
}

/// Reads the policy of a file or folder, as the webhook does.
fn policy(args: &Args) -> Result<Policy> {
    let file = args.file.display();
    let objects = if args.file.is_dir() {
        documents::read(std::slice::from_ref(&args.file), "-f")?
    } else {
        let text = documents::text(&args.file, &mut InputFiles::default())?;
        if text.trim().is_empty() {
            bail!("{file}: is empty; name a ConfigMap with data[{KEY}], or {KEY} itself");
        }
        let objects = match manifest::documents(&text) {
            Ok(objects) if objects.iter().any(|o| o.value["kind"].is_string()) => objects,
            // Only a text that is meant to be JSON gets the JSON error.
            Err(error) if !text.trim_start().starts_with('{') => bail!("{file}: {error}"),
            _ => {
                return Policy::parse(&text)
                    .map_err(|e| anyhow!("{file}: the policy would not be used: {e}"));
            }
        };
        let objects = objects.into_iter();
        objects.map(|o| Document::of(&args.file, o)).collect()
    };
    for object in &objects {
        let Some(text) = object.value["data"][KEY].as_str() else {
            continue;
        };
        return Policy::parse(text).map_err(|e| {
            let name = plain(
                object.value["metadata"]["name"]
                    .as_str()
                    .unwrap_or_default(),
            );
            let (file, number) = (object.file.display(), object.number);
            anyhow!(
                "{file}, document {number}: ConfigMap {name}: data[{KEY}] would not be used: {e}"
            )
        });
    }
    let mut kinds = objects.iter().map(Document::kind);
    if kinds.any(|kind| kind.starts_with("ConstraintPolicy")) {
        bail!(
            "{file}: has constraint policies, and this command is for policies of GPU shares; use \
             tautline plan -f {file} --strict"
        );
    }
    bail!("{file}: no ConfigMap in it has data[{KEY}]; name one that has, or {KEY} itself")
}

/// Returns the pod in an object, or in its pod template.
fn pod(document: &Document) -> Option<Value> {
    let object = &document.value;
    let template = match document.kind() {
        "Pod" => return Some(object.clone()),
        "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"],
        _ => &object["spec"]["template"],
    };
    let made = || json!({"metadata": template["metadata"], "spec": template["spec"]});
    template["spec"]["containers"].is_array().then(made)
}

impl Checked {
    fn of(document: &Document, decision: Decision) -> Self {
        let (outcome, why, change) = match decision {
            Decision::Unchanged(why) => (Effect::Unchanged, why.to_string(), None),
            Decision::Refuse(message) => (Effect::Refused, message.to_string(), None),
            Decision::Mutate(mutation) => (
                Effect::Changed,
                format!("{}; {}", mutation.cause, mutation.source),
                Some(Change::of(mutation)),
            ),
        };
        Self {
            pod: document.name(),
            file: document.file.clone(),
            document: document.number,
            outcome,
            why,
            change,
            title: document.to_string(),
        }
    }

    fn text(&self, names: &Names) -> String {
        let (title, why) = (plain(&self.title), plain(&self.why));
        let mut out = format!("{title}: {}\n  {why}\n", self.outcome);
        for container in self.change.iter().flat_map(|change| &change.containers) {
            let (name, whole, shared) = (plain(&container.name), names.whole(), names.shared());
            // Writing to a string cannot fail.
            _ = writeln!(out, "  {name}");
            _ = writeln!(out, "  - {whole}: {}", container.cards);
            _ = writeln!(out, "  + {shared}: {}", container.shares);
        }
        out
    }
}

impl Change {
    fn of(mutation: Mutation) -> Self {
        let container = |change: tautline_gpu_sharing::Change| Container {
            name: if change.init {
                format!("init container {}", change.container)
            } else {
                format!("container {}", change.container)
            },
            cards: change.cards,
            shares: change.units,
        };
        Self {
            ratio: mutation.ratio,
            containers: mutation.changes.into_iter().map(container).collect(),
            patch: mutation.patch,
        }
    }
}

impl Report {
    fn text(&self, names: &Names) -> String {
        let s = if self.rules == 1 { "" } else { "s" };
        let mut out = format!("policy: {} rule{s}\n", self.rules);
        for bad in &self.bad_rules {
            _ = writeln!(out, "  bad: {}", plain(bad));
        }
        for warning in &self.warnings {
            _ = writeln!(out, "  warning: {}", plain(warning));
        }
        out.extend(self.pods.iter().map(|pod| pod.text(names)));
        out
    }
}
