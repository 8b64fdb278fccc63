//! Implements `tautline check model`, which sets the defaults of model registry objects and
//! validates them.

use std::{fmt::Write, path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};
use serde::Serialize;
use serde_json::Value;
use tautline_model_registry::{Kind, defaults, message, review};

use super::documents::{self, Document, plain_lines};
use crate::{
    exit_code,
    output::{self, Output},
    table::plain,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Manifests of Model, ModelBooster, AutoscalingPolicy and AutoscalingPolicyBinding
    #[arg(short, long, value_name = "PATH", required = true, num_args = 1..)]
    file: Vec<PathBuf>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Serialize)]
struct Checked {
    object: String,
    file: PathBuf,
    document: usize,
    accepted: bool,
    /// The RFC 6902 operations that fill in missing fields.
    defaults: Vec<Value>,
    errors: Vec<String>,
    #[serde(skip)]
    title: String,
    #[serde(skip)]
    message: String,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut checked = Vec::new();
    for document in documents::read(&args.file, "-f")? {
        match Kind::named(document.kind()) {
            Some(kind) => checked.push(Checked::of(kind, document)?),
            None => note!("left out: {}", plain(&document.to_string())),
        }
    }
    if checked.is_empty() {
        bail!(
            "no object is a Model, ModelBooster, AutoscalingPolicy or AutoscalingPolicyBinding; \
             name a file with one by -f"
        );
    }
    output::print(args.output, &checked, |all| {
        all.iter().map(Checked::text).collect()
    })?;
    Ok(exit_code(checked.iter().all(|c| c.accepted)))
}

impl Checked {
    /// Applies the defaults, then reviews, as the server does.
    fn of(kind: Kind, document: Document) -> Result<Self> {
        let (title, name) = (document.to_string(), document.name());
        let object = format!("{} {name}", document.kind());
        let defaults = defaults(kind, &document.value);
        let mut value = document.value;
        let patch: json_patch::Patch = serde_json::from_value(Value::from(defaults.clone()))?;
        json_patch::patch(&mut value, &patch)?;
        let errors = review(kind, &value, None).err().unwrap_or_default();
        Ok(Self {
            object,
            file: document.file,
            document: document.number,
            accepted: errors.is_empty(),
            defaults,
            errors: errors.iter().map(ToString::to_string).collect(),
            title,
            message: message(&errors),
        })
    }

    fn text(&self) -> String {
        let answer = if self.accepted { "accepted" } else { "refused" };
        let mut out = format!("{}: {answer}\n", plain(&self.title));
        for operation in &self.defaults {
            let path = operation["path"].as_str().unwrap_or_default();
            _ = writeln!(out, "  + {path}: {}", operation["value"]);
        }
        if !self.accepted {
            for line in plain_lines(&self.message) {
                _ = writeln!(out, "  {line}");
            }
        }
        out
    }
}
