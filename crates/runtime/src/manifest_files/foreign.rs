//! Tells the files of other tools from manifests.

use std::path::Path;

use tautline_api::manifest::{self, Document, FieldPath, LineIndex};

use super::{ManifestFileError, Skipped, folder};

/// Returns the Kubernetes objects of a file, and adds what is left out to `skipped`.
///
/// # Errors
/// The file is not YAML and was meant to be a manifest.
pub(super) fn split(
    path: &Path,
    text: &str,
    is_in_folder: bool,
    skipped: &mut Vec<Skipped>,
) -> Result<Vec<Document>, ManifestFileError> {
    if folder::is_kustomization(path) {
        skipped.push(folder::kustomized(path));
        return Ok(Vec::new());
    }
    if has_template(text)
        && let Some(chart) = folder::chart_of(path)
    {
        skipped.push(folder::in_chart(path, &chart));
        return Ok(Vec::new());
    }
    let documents = match manifest::documents(text) {
        Ok(documents) => documents,
        Err(_) if has_template(text) => {
            skipped.push(Skipped::of(path, "is a template, so it is left out"));
            return Ok(Vec::new());
        }
        Err(_) if is_in_folder && !is_meant(text) => {
            skipped.push(Skipped::of(path, "is not YAML, so it is left out"));
            return Ok(Vec::new());
        }
        Err(error) => {
            let place = error.place();
            return Err(ManifestFileError {
                line: place.and_then(|p| LineIndex::new(text).line(p, &FieldPath::default())),
                ..ManifestFileError::of(path, error)
            });
        }
    };
    // In a folder, a file with the kind of a workload may be values for a chart.
    let is_object = |document: &Document| {
        let has_version = !document.value["apiVersion"].is_null();
        manifest::is_object(document) && (has_version || !is_in_folder)
    };
    let (objects, others): (Vec<_>, Vec<_>) = documents.into_iter().partition(is_object);
    let missing = "no Kubernetes object (apiVersion and kind), so it is left out";
    match (objects.as_slice(), others.as_slice()) {
        (_, []) => {}
        ([], _) => skipped.push(Skipped::of(path, format!("has {missing}"))),
        (_, [first, ..]) => {
            let reason = format!("document {} is {missing}", first.place.document);
            skipped.push(Skipped::of(path, reason));
        }
    }
    Ok(objects)
}

/// Returns whether a text has the marks of a template of Helm or Jinja.
fn has_template(text: &str) -> bool {
    ["{{", "{%"].iter().any(|mark| text.contains(mark))
}

/// Returns whether a text that is not YAML was meant to be a manifest.
fn is_meant(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    lines.any(|line| line.starts_with("apiVersion:") || line.starts_with("\"apiVersion\":"))
}
