//! Finds the manifests of a folder, and leaves out its charts, values and kustomizations.

use std::path::{Path, PathBuf};

use tautline_api::manifest::Document;

use super::{ManifestFileError, is_test_file};
use crate::input_files::InputFiles;

pub(super) struct Found {
    pub files: Vec<PathBuf>,
    /// True if the path is a folder, so that the user did not name its files.
    pub is_folder: bool,
}

/// Returns the files of a path, sorted, and adds the folders that are left out to `skipped`.
pub(super) fn files(
    path: &Path,
    inputs: &InputFiles,
    skipped: &mut Vec<String>,
) -> Result<Found, ManifestFileError> {
    let is_folder = path.is_dir();
    let mut files = Vec::new();
    if is_folder {
        collect(path, inputs, skipped, &mut files)?;
    } else {
        files.push(path.to_owned());
    }
    files.sort();
    Ok(Found { files, is_folder })
}

fn collect(
    folder: &Path,
    inputs: &InputFiles,
    skipped: &mut Vec<String>,
    files: &mut Vec<PathBuf>,
) -> Result<(), ManifestFileError> {
    let fail = |e: std::io::Error| ManifestFileError::of(folder, e);
    inputs
        .check(folder)
        .map_err(|e| ManifestFileError::of(folder, e))?;
    if folder.join("Chart.yaml").is_file() {
        let (folder, render) = (folder.display(), "helm template NAME");
        skipped.push(format!(
            "{folder}: is a Helm chart, so it is left out; plan what it renders to: {render} \
             {folder} | ... -f -"
        ));
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        let entry = entry.path();
        let is_manifest = entry
            .extension()
            .is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
        if entry.is_dir() {
            if !is_hidden && !leads_back(&entry, folder) {
                collect(&entry, inputs, skipped, files)?;
            }
        } else if is_manifest && !is_test_file(&entry) {
            files.push(entry);
        }
    }
    Ok(())
}

/// Returns whether a link in `folder` leads to a folder that contains the link.
fn leads_back(link: &Path, folder: &Path) -> bool {
    link.is_symlink()
        && match (link.canonicalize(), folder.canonicalize()) {
            (Ok(target), Ok(folder)) => folder.starts_with(target),
            _ => true,
        }
}

/// Returns the reason why a file in a folder is no manifest, if so. A document with `apiVersion` or
/// `kind` is meant to be a manifest.
pub(super) fn foreign(documents: &[Document]) -> Option<&'static str> {
    let has = |document: &Document, field: &str| !document.value[field].is_null();
    let version = |d: &Document| {
        d.value["apiVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let is_kustomization = |d: &Document| {
        version(d).starts_with("kustomize.config.k8s.io/")
            || (!has(d, "kind") && KUSTOMIZATION.iter().any(|field| d.value[*field].is_array()))
    };
    match documents {
        [] => None,
        all if all.iter().all(is_kustomization) => Some(
            "is a kustomization, so it is left out, and the files are read as they are; plan what \
             it makes of them: kubectl kustomize DIR | ... -f -",
        ),
        all if !all.iter().any(|d| has(d, "apiVersion") || has(d, "kind")) => {
            Some("has no Kubernetes objects (apiVersion and kind), so it is left out")
        }
        _ => None,
    }
}

const KUSTOMIZATION: [&str; 4] = ["resources", "bases", "components", "patchesStrategicMerge"];
