//! Implements `tautline check mutation`, which evaluates mutation policies for objects from files.

mod text;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::{Value, json};
use tautline_api::manifest;
use tautline_mutating_policy::{
    Creation, Denial, Fault, InvocationReport, LoadReport, Policies, Settings, SkippedPolicy,
    StaticCluster, Verdict,
};

use super::documents::{self, Document, Effect};
use crate::{
    exit_code,
    output::{self, Output},
    table::plain,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Policies and their bindings; parameters and Namespaces, if they look at any; what admission
    /// looks at: ServiceAccounts, PriorityClasses, LimitRanges, RuntimeClasses
    #[arg(short, long, value_name = "PATH", required = true, num_args = 1..)]
    file: Vec<PathBuf>,
    /// Objects as they would be created, or an AdmissionReview for another request
    #[arg(long, value_name = "PATH", num_args = 1..)]
    object: Vec<PathBuf>,
    /// Namespace of what names none
    #[arg(short, long, value_name = "NS", default_value = "default")]
    namespace: String,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    /// The number of policies that have a binding.
    policies: usize,
    faults: Vec<String>,
    warnings: Vec<String>,
    objects: Vec<Object>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    object: String,
    file: PathBuf,
    document: usize,
    outcome: Effect,
    /// The notes about parts of admission before the policies that were left out, since their
    /// objects were not given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<Denial>,
    /// The changes, as RFC 6902 operations.
    patch: Value,
    cost_units: u64,
    invocations: Vec<InvocationReport>,
    /// The errors, including those that failurePolicy Ignore ignored.
    faults: Vec<Fault>,
    #[serde(rename = "passedOver")]
    skipped: Vec<SkippedPolicy>,
    #[serde(skip)]
    title: String,
    /// The object before the policies.
    #[serde(skip)]
    before: Value,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let given = documents::read(&args.file, "-f")?;
    let (policies, report) = Policies::load(given.iter().map(|d| &d.value));
    let LoadReport { faults, warnings } = report;
    if policies.is_empty() && faults.is_empty() && warnings.is_empty() {
        bail!(
            "no object is a MutationPolicy or a MutatingAdmissionPolicy; \
             name a file with one, and one with its binding, by -f"
        );
    }
    let cluster: StaticCluster = given.into_iter().map(|d| d.value).collect();
    let cluster = cluster.with_built_in_admission();
    let objects = documents::read(&args.object, "--object")?;
    let objects = objects.into_iter().map(|document| {
        let creation = evaluate(&document, &args.namespace, &policies, &cluster)?;
        Ok(Object::of(&document, creation))
    });
    let checked = Checked {
        policies: policies.len(),
        faults: faults.iter().map(ToString::to_string).collect(),
        warnings: warnings.iter().map(ToString::to_string).collect(),
        objects: objects.collect::<Result<_>>()?,
    };
    output::print(args.output, &checked, text::of)?;
    let refused = checked.objects.iter().any(|o| o.outcome == Effect::Refused);
    Ok(exit_code(!refused && checked.faults.is_empty()))
}

/// Evaluates the request of the document's AdmissionReview, else a request that creates the
/// document's object.
fn evaluate(
    document: &Document,
    namespace: &str,
    policies: &Policies,
    cluster: &StaticCluster,
) -> Result<Creation> {
    let settings = Settings {
        full_detail: true,
        ..Settings::default()
    };
    if document.kind() == "AdmissionReview" {
        let request = serde_json::from_value(document.value["request"].clone())
            .with_context(|| format!("{}: request", plain(&document.to_string())))?;
        return Ok(Creation {
            outcome: cluster.evaluate(&request, policies, &settings),
            notes: Vec::new(),
            request,
        });
    }
    let mut object = document.value.clone();
    // If the document has no namespace, its kind may be cluster-scoped.
    let is_cluster_wide = manifest::is_cluster_wide(document.kind());
    if document.namespace().is_none() && !is_cluster_wide && object["metadata"].is_object() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    cluster
        .create(object, policies, &settings)
        .with_context(|| {
            let title = document.to_string();
            format!("{}: apiVersion and kind are needed", plain(&title))
        })
}

impl Object {
    fn of(document: &Document, creation: Creation) -> Self {
        let Creation {
            request,
            notes,
            outcome,
        } = creation;
        let cost_units = outcome.cost_units();
        let (answer, refusal, patch) = match outcome.verdict {
            Verdict::Unchanged => (Effect::Unchanged, None, json!([])),
            Verdict::Changed { patch, .. } => (Effect::Changed, None, json!(patch)),
            Verdict::Refused(refusal) => (Effect::Refused, Some(refusal), json!([])),
        };
        Self {
            object: format!("{} {}", document.kind(), document.name()),
            file: document.file.clone(),
            document: document.number,
            outcome: answer,
            notes,
            refusal,
            patch,
            cost_units,
            invocations: outcome.invocations,
            faults: outcome.faults,
            skipped: outcome.skipped,
            title: document.to_string(),
            before: request.object.as_ref().clone(),
        }
    }
}
