//! Reads the format of test files.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;
use tautline_api::manifest::{self, FieldPath, LineIndex, Location};
use tautline_core::text::shorten;

use super::expect::Expect;
use crate::local::builtin::NodeCosts;

/// The costs by rule and node.
pub(super) type Costs = BTreeMap<String, NodeCosts>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TestFile {
    #[serde(default)]
    manifests: Vec<PathBuf>,
    #[serde(default = "default_namespace")]
    pub namespace: String,
    #[serde(default)]
    pub costs: Costs,
    pub cases: Vec<CaseSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseSpec {
    pub name: String,
    pub namespace: Option<String>,
    pub pod: Option<Subject>,
    pub workload: Option<Subject>,
    /// True to begin with the cluster of the manifests again.
    #[serde(default)]
    pub fresh: bool,
    /// The costs in this case only, which take precedence over those of the file.
    #[serde(default)]
    pub costs: Costs,
    pub expect: Expect,
}

/// The subject of a case: a name, or the object itself.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "must be a name, or an object's fields")]
pub(super) enum Subject {
    Name(String),
    Object(Map<String, Value>),
}

fn default_namespace() -> String {
    "default".to_owned()
}

impl TestFile {
    /// Returns the manifests of a file with this path.
    pub fn manifests(&self, path: &Path) -> Vec<PathBuf> {
        let folder = folder_of(path);
        match self.manifests.as_slice() {
            [] => vec![folder.to_owned()],
            some => some.iter().map(|p| normal(&folder.join(p))).collect(),
        }
    }
}

/// Returns the folder of a file.
pub fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Returns `a/tests/../b` as `a/b`, for messages.
fn normal(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut short = PathBuf::new();
    let parts = path.components().filter(|part| *part != Component::CurDir);
    for part in parts {
        let last = short.components().next_back();
        match (part, last) {
            (Component::ParentDir, Some(Component::Normal(_))) => _ = short.pop(),
            _ => short.push(part),
        }
    }
    if short.as_os_str().is_empty() {
        ".".into()
    } else {
        short
    }
}

/// The faults of one file, as `FILE:LINE: field: problem; fix`.
pub(super) struct Faults<'a> {
    path: &'a Path,
    text: &'a str,
    lines: Option<LineIndex>,
    pub found: Vec<String>,
}

const DOCUMENT: Location = Location {
    document: 1,
    index: None,
};

impl<'a> Faults<'a> {
    pub fn new(path: &'a Path, text: &'a str) -> Self {
        Self {
            path,
            text,
            lines: None,
            found: Vec::new(),
        }
    }

    pub fn add(&mut self, field: &FieldPath, message: &str) {
        let lines = self.lines.get_or_insert_with(|| LineIndex::new(self.text));
        let line = lines
            .line(DOCUMENT, field)
            .map_or_else(String::new, |line| format!(":{line}"));
        let field = if field == &FieldPath::default() {
            String::new()
        } else {
            format!("{field}: ")
        };
        let (field, message) = (shorten(&field), shorten(message));
        self.found
            .push(format!("{}{line}: {field}{message}", self.path.display()));
    }

    pub fn done<T>(self, value: T) -> Result<T, Vec<String>> {
        if self.found.is_empty() {
            Ok(value)
        } else {
            Err(self.found)
        }
    }
}

/// Returns the path of a case.
pub(super) fn case_path(at: usize) -> FieldPath {
    FieldPath::from_keys(["cases"]).index(at)
}

/// Reads a test file; the error has its faults.
pub(super) fn read(path: &Path, text: &str) -> Result<TestFile, Vec<String>> {
    let mut faults = Faults::new(path, text);
    let documents =
        manifest::documents(text).map_err(|e| vec![format!("{}: {e}", path.display())])?;
    let document = match documents.as_slice() {
        [document] => document,
        _ => {
            let what = format!(
                "has {} YAML documents; a test file is one, with cases",
                documents.len()
            );
            faults.add(&FieldPath::default(), &what);
            return Err(faults.found);
        }
    };
    for again in &document.duplicates {
        faults.add(again, "is there twice; remove one of them");
    }
    for (field, what) in &document.invalid {
        faults.add(field, what);
    }
    let file: TestFile = match serde_path_to_error::deserialize(&document.value) {
        Ok(file) => file,
        Err(error) => {
            let at = field_path(error.path());
            faults.add(&at, &error.into_inner().to_string());
            return Err(faults.found);
        }
    };
    check(&file, &mut faults);
    faults.done(file)
}

fn field_path(path: &serde_path_to_error::Path) -> FieldPath {
    let mut at = FieldPath::default();
    for segment in path {
        at = match segment {
            Segment::Seq { index } => at.index(*index),
            Segment::Map { key } => at.key(key),
            Segment::Enum { .. } | Segment::Unknown => at,
        };
    }
    at
}

fn check(file: &TestFile, faults: &mut Faults<'_>) {
    if file.cases.is_empty() {
        let what = "no case; write one with name, pod and expect";
        faults.add(&FieldPath::from_keys(["cases"]), what);
    }
    let mut names = BTreeSet::new();
    for (at, case) in file.cases.iter().enumerate() {
        let path = case_path(at);
        if case.name.trim().is_empty() {
            faults.add(&path.key("name"), "is empty; write a sentence");
        } else if !names.insert(&case.name) {
            faults.add(
                &path.key("name"),
                "is another case's name; write one of its own",
            );
        }
        match (&case.pod, &case.workload) {
            (None, None) => faults.add(&path, "has no pod; write pod or workload"),
            (Some(_), Some(_)) => {
                faults.add(
                    &path.key("workload"),
                    "the case has a pod, too; remove one of them",
                );
            }
            _ => {}
        }
        if let Some(what) = case.expect.fault() {
            faults.add(&path.key("expect"), what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::builtin::FixedCost;

    fn faults(text: &str) -> String {
        let found = read(Path::new("t.yaml"), text).map(|_| ()).unwrap_err();
        found.join("\n")
    }

    #[test]
    fn faults_name_line_and_field() {
        let case = |fields: &str| format!("cases:\n- name: a\n  pod: p\n  {fields}\n");
        let all = [
            "a: [".to_owned(),
            String::new(),
            "cases: []".to_owned(),
            "manifest: [..]\ncases: []".to_owned(),
            case("expect: {nod: a}"),
            case("expect: {scores: {a: 11}}"),
            case("expect: {}"),
            case("expect: {node: a, pending: true}"),
            case("expct: {}\n  expect: {node: a}"),
            "cases:\n- {name: a, expect: {node: a}}".to_owned(),
            "cases:\n- {name: a, pod: p, workload: Job/w, expect: {node: a}}".to_owned(),
            "cases:\n- {name: a, pod: [p], expect: {node: a}}".to_owned(),
            "costs:\n  carbon:\n    a: over-limit\ncases: []".to_owned(),
            case("expect: {node: a}\n- {name: a, pod: p, expect: {node: a}}"),
            "cases: []\n---\ncases: []".to_owned(),
        ];
        let found: Vec<String> = all.iter().map(|text| faults(text)).collect();
        insta::assert_snapshot!(found.join("\n"), @r#"
        t.yaml: not valid YAML: line 1 column 4: unclosed bracket '['
        t.yaml: has 0 YAML documents; a test file is one, with cases
        t.yaml:1: cases: no case; write one with name, pod and expect
        t.yaml:1: manifest: unknown field `manifest`, expected one of `manifests`, `namespace`, `costs`, `cases`
        t.yaml:4: cases[0].expect.nod: unknown field `nod`, expected one of `node`, `nodes`, `pending`, `governed`, `reasons`, `counts`, `scores`
        t.yaml:4: cases[0].expect.scores.a: a score is 0 to 10
        t.yaml:4: cases[0].expect: is empty; write node, nodes, pending, governed, reasons, counts or scores
        t.yaml:4: cases[0].expect: node and pending exclude each other; remove one of them
        t.yaml:4: cases[0].expct: unknown field `expct`, expected one of `name`, `namespace`, `pod`, `workload`, `fresh`, `costs`, `expect`
        t.yaml:2: cases[0]: has no pod; write pod or workload
        t.yaml:2: cases[0].workload: the case has a pod, too; remove one of them
        t.yaml:2: cases[0].pod: must be a name, or an object's fields
        t.yaml:3: costs.carbon.a: must be a whole number, or a reason code of letters, such as OverLimit
        t.yaml:5: cases[1].name: is another case's name; write one of its own
        t.yaml:1: has 2 YAML documents; a test file is one, with cases
        "#);
    }

    #[test]
    fn manifests_are_found_from_the_file_on() {
        let of = |path: &str, manifests: &str| {
            let case = "cases: [{name: a, pod: p, expect: {pending: true}}]";
            let file = read(Path::new(path), &format!("{manifests}\n{case}")).unwrap();
            let found = file.manifests(Path::new(path)).into_iter();
            found.map(|p| p.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of("a/tests/t.yaml", ""), ["a/tests"]);
        assert_eq!(of("t.yaml", ""), ["."]);
        let up = "manifests: [.., ../../b/c.yaml]";
        assert_eq!(of("a/tests/t.yaml", up), ["a", "b/c.yaml"]);
        assert_eq!(of("t.yaml", "manifests: [..]"), [".."]);
    }

    #[test]
    fn costs_are_numbers_or_codes() {
        let text = "costs: {carbon: {a: 3, b: -1, c: OverLimit}}\n\
                    cases: [{name: a, pod: p, expect: {pending: false}}]";
        let file = read(Path::new("t.yaml"), text).unwrap();
        let costs = &file.costs["carbon"];
        assert_eq!(costs["a"], FixedCost::Cost(3));
        assert_eq!(costs["b"], FixedCost::Cost(-1));
        assert_eq!(costs["c"], FixedCost::Refused("OverLimit".into()));
    }
}
