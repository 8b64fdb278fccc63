use std::{
    fmt,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::Value;
use tautline_api::manifest::{self, Location};
use tautline_runtime::manifest_files;

use crate::manifests;

pub(super) struct Document {
    pub(super) file: PathBuf,
    /// The document of the file, from 1 on.
    pub(super) number: usize,
    pub(super) value: Value,
}

/// The objects of these files; fails at the first that cannot be read or is not YAML.
pub(super) fn read(files: &[PathBuf]) -> Result<Vec<Document>> {
    let mut all = Vec::new();
    for file in files {
        let text = text(file)?;
        let documents = manifest::documents(&text).with_context(|| file.display().to_string())?;
        let documents: Vec<_> = documents.into_iter().flat_map(items).collect();
        let findings: Vec<_> = documents
            .iter()
            .flat_map(|(place, value)| manifest::findings(*place, value.clone()))
            .collect();
        if !findings.is_empty() {
            let findings = findings.iter().map(|(place, finding)| (*place, finding));
            manifests::show(&manifest_files::with_lines(file, &text, findings));
        }
        all.extend(documents.into_iter().map(|(place, value)| Document {
            file: file.clone(),
            number: place.document,
            value,
        }));
    }
    Ok(all)
}

/// The objects of a list of one kind, such as a PodList; else the object itself. An item is of the
/// list's version and kind if it does not say.
fn items((place, mut value): (Location, Value)) -> Vec<(Location, Value)> {
    let kind = value["kind"].as_str().and_then(|k| k.strip_suffix("List"));
    let (Some(kind), Value::Array(_)) = (kind.map(str::to_owned), &value["items"]) else {
        return vec![(place, value)];
    };
    let Value::Array(items) = value["items"].take() else {
        return Vec::new();
    };
    let item = |(i, mut item): (usize, Value)| {
        if let Some(fields) = item.as_object_mut() {
            let version = || value["apiVersion"].clone();
            fields.entry("apiVersion").or_insert_with(version);
            fields.entry("kind").or_insert_with(|| kind.as_str().into());
        }
        let index = Some(i);
        (Location { index, ..place }, item)
    };
    items.into_iter().enumerate().map(item).collect()
}

/// The text of a file, or of the standard input.
pub(super) fn text(file: &Path) -> Result<String> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|mut f| f.read_to_string(&mut text))
    };
    read.with_context(|| file.display().to_string())?;
    Ok(text)
}

impl Document {
    pub(super) fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.value["metadata"]["namespace"].as_str()
    }

    /// `NAMESPACE/NAME`, or `NAME` for an object without a namespace.
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

/// `KIND NAMESPACE/NAME (FILE, document NUMBER)`
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
