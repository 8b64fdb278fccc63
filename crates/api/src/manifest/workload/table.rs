//! The table of kinds whose objects make pods: its own, and those of a user's file.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;
use serde_json::Value;

use super::{
    super::{FieldPath, LineIndex, ManifestError, documents},
    path::Pattern,
};

static BUILT_IN: LazyLock<Vec<WorkloadKind>> =
    LazyLock::new(|| entries(include_str!("kinds.yaml")).unwrap_or_default());

/// The kinds whose objects make pods, with the paths of their pod templates.
#[derive(Clone, Debug, Default)]
pub struct WorkloadTable {
    /// The kinds of the user, which take precedence.
    own: Vec<WorkloadKind>,
}

/// The error of a table.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadTableError {
    /// The text is not YAML.
    #[error(transparent)]
    Yaml(#[from] ManifestError),
    /// An entry is malformed.
    #[error("{}{field}: {message}", line.map_or_else(String::new, |l| format!("line {l}: ")))]
    Entry {
        /// The line, from 1 on, if it is known.
        line: Option<u64>,
        /// The field.
        field: FieldPath,
        /// The problem.
        message: String,
    },
}

/// An entry of the table; `kinds.yaml` describes the fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WorkloadKind {
    api_version: String,
    kind: String,
    pub suspend: Option<Pattern>,
    #[serde(default)]
    pub finished: Vec<String>,
    #[serde(default)]
    pub not_considered: Vec<Pattern>,
    pub pods: Vec<PodRule>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PodRule {
    pub template: Pattern,
    pub fallback: Option<Pattern>,
    #[serde(default)]
    pub counts: Vec<Count>,
    pub job: Option<Pattern>,
    #[serde(default)]
    pub per_node: bool,
    pub suspend: Option<Pattern>,
    pub group: Option<Pattern>,
    #[serde(default = "default_name")]
    pub name: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    pub exclusive: Option<ExclusiveRule>,
}

/// The topology that a group of pods has for itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ExclusiveRule {
    pub topology: Vec<Pattern>,
    pub label: String,
    pub leader: String,
    #[serde(default)]
    pub all_namespaces: bool,
}

fn default_name() -> String {
    "{name}-{0}".to_owned()
}

#[derive(Clone, Debug, Deserialize)]
#[serde(from = "CountSpec")]
pub(super) struct Count {
    pub field: Pattern,
    pub default: usize,
    pub min: Option<Bound>,
    pub max: Option<Bound>,
    /// The number of pods that another rule makes.
    pub skip: usize,
    /// The field that has the number of the first pod.
    pub first: Option<Pattern>,
}

/// A bound of a count.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "must be a number or a path")]
pub(super) enum Bound {
    Number(usize),
    Field(Pattern),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "must be a path, or a mapping with a field")]
enum CountSpec {
    Field(Pattern),
    Full(FullCount),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FullCount {
    field: Pattern,
    #[serde(default = "one")]
    default: usize,
    min: Option<Bound>,
    max: Option<Bound>,
    #[serde(default)]
    skip: usize,
    first: Option<Pattern>,
}

fn one() -> usize {
    1
}

impl From<CountSpec> for Count {
    fn from(spec: CountSpec) -> Self {
        let full = match spec {
            CountSpec::Full(full) => full,
            CountSpec::Field(field) => FullCount {
                field,
                default: 1,
                min: None,
                max: None,
                skip: 0,
                first: None,
            },
        };
        Self {
            field: full.field,
            default: full.default,
            min: full.min,
            max: full.max,
            skip: full.skip,
            first: full.first,
        }
    }
}

impl WorkloadTable {
    /// Adds the kinds of a text in the format of the table. They take precedence.
    ///
    /// # Errors
    /// The text is not a table.
    pub fn add(&mut self, text: &str) -> Result<(), WorkloadTableError> {
        self.own.extend(entries(text)?);
        Ok(())
    }

    pub(super) fn find(&self, api_version: &str, kind: &str) -> Option<&WorkloadKind> {
        let fits = |entry: &&WorkloadKind| {
            entry.kind == kind
                && match entry.api_version.strip_suffix('*') {
                    Some(group) => api_version.starts_with(group),
                    None => entry.api_version == api_version,
                }
        };
        let own = self.own.iter().rev().find(fits);
        own.or_else(|| BUILT_IN.iter().find(fits))
    }
}

fn entries(text: &str) -> Result<Vec<WorkloadKind>, WorkloadTableError> {
    let mut all = Vec::new();
    for document in documents(text)? {
        let fail = |field: FieldPath, message: String| WorkloadTableError::Entry {
            line: LineIndex::new(text).line(document.place, &field),
            field,
            message,
        };
        if let Some(again) = document.duplicates.first() {
            return Err(fail(
                again.clone(),
                "is there twice; remove one of them".into(),
            ));
        }
        if let Some((field, what)) = document.invalid.first() {
            return Err(fail(field.clone(), what.clone()));
        }
        let Value::Array(_) = document.value else {
            let what = "is not a list of kinds; begin each with - apiVersion: GROUP/VERSION";
            return Err(fail(FieldPath::default(), what.to_owned()));
        };
        let read: Vec<WorkloadKind> = serde_path_to_error::deserialize(&document.value)
            .map_err(|e| fail(FieldPath::of(e.path()), e.inner().to_string()))?;
        all.extend(read);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_is_read() {
        let all = entries(include_str!("kinds.yaml")).unwrap();
        assert!(all.len() > 20, "{} kinds", all.len());
        let table = WorkloadTable::default();
        assert!(table.find("ray.io/v1alpha1", "RayJob").is_some());
        assert!(table.find("extensions/v1beta1", "Deployment").is_none());
    }

    #[test]
    fn errors_of_a_table_name_line_and_field() {
        let mut table = WorkloadTable::default();
        let mut message = |text: &str| table.add(text).unwrap_err().to_string();
        let entry = "- apiVersion: example.com/v1\n  kind: Flock\n  pods:\n";
        for (text, start) in [
            (
                format!("{entry}  - {{tempate: spec.template}}\n"),
                "line 4: [0].pods[0].tempate: unknown field `tempate`",
            ),
            (
                format!("{entry}  - {{template: a..b}}\n"),
                "line 4: [0].pods[0].template: \"a..b\" is not a path",
            ),
            ("kind: Flock\n".to_owned(), "line 1: : is not a list"),
            ("a: [".to_owned(), "not valid YAML"),
        ] {
            let error = message(&text);
            assert!(error.starts_with(start), "{error}");
        }
    }
}
