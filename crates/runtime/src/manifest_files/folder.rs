//! Finds the manifests of a folder, and leaves out its charts, and the patches of kustomizations.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tautline_api::manifest;

use super::{ManifestFileError, Skipped, is_test_file};
use crate::input_files::InputFiles;

const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// The fields of a kustomization that name files of objects.
const RESOURCES: [&str; 3] = ["resources", "bases", "components"];

#[derive(Default)]
pub(super) struct Found {
    pub files: Vec<PathBuf>,
    /// True if the path is a folder, so that the user did not name its files.
    pub is_folder: bool,
    /// The files that kustomizations name and that have no objects of their own, such as patches.
    parts: Vec<PathBuf>,
}

/// Returns the files of a path, sorted, and adds what is left out to `skipped`.
pub(super) fn files(
    path: &Path,
    inputs: &mut InputFiles,
    skipped: &mut Vec<Skipped>,
) -> Result<Found, ManifestFileError> {
    let mut found = Found {
        is_folder: path.is_dir(),
        ..Found::default()
    };
    match chart_of(path) {
        Some(chart) if found.is_folder => skipped.push(in_chart(path, &chart)),
        _ if found.is_folder => collect(path, inputs, skipped, &mut found)?,
        _ => found.files.push(path.to_owned()),
    }
    found.files.sort();
    let parts = std::mem::take(&mut found.parts);
    found.files.retain(|file| {
        let file = file.canonicalize();
        file.map_or(true, |file| !parts.contains(&file))
    });
    Ok(found)
}

fn collect(
    folder: &Path,
    inputs: &mut InputFiles,
    skipped: &mut Vec<Skipped>,
    found: &mut Found,
) -> Result<(), ManifestFileError> {
    let fail = |e: std::io::Error| ManifestFileError::of(folder, e);
    inputs
        .check(folder)
        .map_err(|e| ManifestFileError::of(folder, e))?;
    if folder.join("Chart.yaml").is_file() {
        let reason = "is a Helm chart, so it is left out";
        skipped.push(Skipped::rendered(folder, reason, helm(folder)));
        return Ok(());
    }
    let entries = std::fs::read_dir(folder).map_err(fail)?;
    let entries: Result<Vec<_>, _> = entries.map(|e| e.map(|e| e.path())).collect();
    let mut entries = entries.map_err(fail)?;
    entries.sort();
    for entry in entries {
        let name = entry.file_name().unwrap_or_default();
        let is_hidden = name.to_string_lossy().starts_with('.');
        let is_manifest = entry
            .extension()
            .is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
        if entry.is_dir() {
            if !is_hidden && !leads_back(&entry, folder) {
                collect(&entry, inputs, skipped, found)?;
            }
        } else if is_kustomization(&entry) {
            found.parts.extend(parts(folder, &entry, inputs));
            skipped.push(kustomized(&entry));
        } else if is_manifest && !is_test_file(&entry) {
            found.files.push(entry);
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

/// Returns whether a file is a kustomization, by its name.
pub(super) fn is_kustomization(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| KUSTOMIZATIONS.contains(&name))
}

pub(super) fn kustomized(file: &Path) -> Skipped {
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let reason = "is a kustomization, so it and its patches are left out, and other files are \
                  read as they are";
    let render = format!("kubectl kustomize {}", quoted(folder));
    Skipped::rendered(file, reason, render)
}

/// Returns the files that a kustomization names and that have no objects: patches, generators and
/// their data. A kustomization that cannot be read has none.
fn parts(folder: &Path, file: &Path, inputs: &mut InputFiles) -> Vec<PathBuf> {
    let text = inputs.found(file).unwrap_or_default();
    let documents = manifest::documents(&text).unwrap_or_default();
    let mut names = Vec::new();
    for (field, value) in documents
        .iter()
        .filter_map(|d| d.value.as_object())
        .flatten()
    {
        if !RESOURCES.contains(&field.as_str()) {
            texts(value, &mut names);
        }
    }
    let paths = names.into_iter().map(|name| {
        // The files of a generator may be written as KEY=FILE.
        let name = name.rsplit_once('=').map_or(name, |(_, file)| file);
        folder.join(name)
    });
    let paths = paths.filter(|path| path.is_file());
    paths.filter_map(|path| path.canonicalize().ok()).collect()
}

/// Collects the texts of a value that may be names of files.
fn texts<'a>(value: &'a Value, names: &mut Vec<&'a str>) {
    match value {
        Value::String(text) if text.len() < 1024 && !text.contains('\n') => names.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, names)),
        Value::Object(fields) => fields.values().for_each(|value| texts(value, names)),
        _ => {}
    }
}

/// Returns the chart whose templates a path is or is in.
pub(super) fn chart_of(path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    let templates = path.ancestors().filter(|p| p.ends_with("templates"));
    let mut charts = templates.filter_map(Path::parent);
    let chart = charts.find(|chart| chart.join("Chart.yaml").is_file())?;
    let here = std::env::current_dir().and_then(|here| here.canonicalize());
    Some(match here {
        Ok(here) if chart == here => PathBuf::from("."),
        Ok(here) => chart.strip_prefix(&here).unwrap_or(chart).to_owned(),
        Err(_) => chart.to_owned(),
    })
}

/// Returns the reason to leave out a path in a chart's templates.
pub(super) fn in_chart(path: &Path, chart: &Path) -> Skipped {
    let reason = "is part of a Helm chart, so it is left out";
    Skipped::rendered(path, reason, helm(chart))
}

/// Returns the command that renders a chart. The release has the chart's name.
fn helm(chart: &Path) -> String {
    let resolved = chart.canonicalize().unwrap_or_default();
    let name = resolved.file_name().unwrap_or_default().to_string_lossy();
    // Helm takes a path without a slash for a chart of a repository if there is no such folder.
    format!(
        "helm template {} {}",
        quote(&name.to_lowercase()),
        quoted(chart)
    )
}

fn quoted(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

/// Quotes an argument for a shell.
fn quote(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}
