//! Reads the YAML and JSON documents that `tautline check` gets from files or from the standard
//! input.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Error, Result};
use serde::Serialize;
use serde_json::Value;
use tautline_api::manifest;
use tautline_runtime::{input_files::InputFiles, manifest_files};

use crate::manifests;

pub(super) struct Document {
    pub(super) file: PathBuf,
    /// The number of the document in the file, from 1 on.
    pub(super) number: usize,
    pub(super) value: Value,
}

/// Reads the objects of these files and folders, as `tautline plan -f` does. `option` is the command's
/// option that names them.
pub(super) fn read(paths: &[PathBuf], option: &str) -> Result<Vec<Document>> {
    let receive = format!("| {} {option} -", manifests::command());
    let (files, skipped) = manifest_files::documents(paths, &mut InputFiles::default(), None)
        .map_err(|e| manifests::located(e, &receive))?;
    manifests::show_skipped(&skipped, &receive);
    let mut all = Vec::new();
    for file in files {
        let documents = file.documents.iter();
        let findings: Vec<_> = documents
            .flat_map(|document| manifest::findings(document.clone()))
            .collect();
        if !findings.is_empty() {
            let findings = findings.iter().map(|(place, finding)| (*place, finding));
            manifests::show(&manifest_files::with_lines(
                &file.path, &file.text, findings,
            ));
        }
        let documents = file.documents.into_iter();
        all.extend(documents.map(|document| Document::of(&file.path, document)));
    }
    Ok(all)
}

/// Reads the text of a file, or of the standard input.
pub(super) fn text(file: &Path, inputs: &mut InputFiles) -> Result<String> {
    let text = inputs.named(file).map_err(Error::msg);
    text.with_context(|| file.display().to_string())
}

impl Document {
    pub(super) fn of(file: &Path, document: manifest::Document) -> Self {
        Self {
            file: file.to_owned(),
            number: document.place.document,
            value: document.value,
        }
    }

    pub(super) fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.value["metadata"]["namespace"].as_str()
    }

    /// Returns `NAMESPACE/NAME`, or `NAME` for an object without a namespace.
    pub(super) fn name(&self) -> String {
        let metadata = &self.value["metadata"];
        let name = match (&metadata["name"], &metadata["generateName"]) {
            (Value::String(name), _) => name.clone(),
            (_, Value::String(prefix)) => format!("{prefix}*"),
            _ => "without a name".to_owned(),
        };
        match self.namespace() {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name,
        }
    }
}

/// Shows `KIND NAMESPACE/NAME (FILE, document NUMBER)`.
impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind() {
            "" => "object",
            kind => kind,
        };
        let (name, file) = (self.name(), self.file.display());
        write!(f, "{kind} {name} ({file}, document {})", self.number)
    }
}

/// The effect of admission on an object.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Effect {
    Changed,
    Unchanged,
    Refused,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
        })
    }
}

/// Returns the lines of a text for people, without control characters.
pub(super) fn plain_lines(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(|line| line.replace(char::is_control, ""))
}
