//! Cases of expressions with the result of Kubernetes' own code: JSON files, a case per
//! line. `kubernetes` is the recorded result; where this crate differs, `ours` is the
//! expected result and `why` the reason.
//!
//! To record the results again, run `tests/oracle/build`, then the tests with
//! `TAUTLINE_CEL_ORACLE` set to the absolute path of the built program `cel`, and review
//! the diff.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot be set up has failed"
)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tautline_cel::{
    AccessCheck, Budget, Decision, Environment, EvaluationError, Patch, Program, Resolver,
    ResourceCheck, ResultType, Subject, Value,
};

/// The variables of a case.
struct Variables<'a> {
    case: &'a Json,
    variables: BTreeMap<String, Program>,
}

impl Resolver for Variables<'_> {
    fn resolve(&self, name: &str, budget: &mut Budget) -> Option<Result<Value, EvaluationError>> {
        if let Some(variable) = name.strip_prefix("variables.") {
            return Some(self.variables.get(variable)?.evaluate(self, budget));
        }
        Some(Ok(match name {
            "authorizer" => Value::Authorizer(Arc::new(Subject::Requester)),
            "authorizer.requestResource" => {
                let part = |pointer: &str| {
                    Arc::from(
                        self.case
                            .pointer(pointer)
                            .and_then(Json::as_str)
                            .unwrap_or(""),
                    )
                };
                Value::AccessCheck(Arc::new(AccessCheck::Resource(ResourceCheck {
                    subject: Arc::new(Subject::Requester),
                    group: part("/request/resource/group"),
                    resource: part("/request/resource/resource"),
                    subresource: part("/request/subResource"),
                    namespace: part("/request/namespace"),
                    name: part("/request/name"),
                    field_selector: "".into(),
                    label_selector: "".into(),
                })))
            }
            "request" => {
                let mut request = self
                    .case
                    .get("request")
                    .cloned()
                    .unwrap_or_else(|| json!({}));
                // Fields that every request has.
                for (field, value) in [("dryRun", json!(false)), ("options", Json::Null)] {
                    request
                        .as_object_mut()
                        .unwrap()
                        .entry(field)
                        .or_insert(value);
                }
                Value::from(&request)
            }
            _ => Value::from(self.case.get(name).unwrap_or(&Json::Null)),
        }))
    }

    fn authorize(&self, check: &AccessCheck, verb: &str) -> Result<Decision, EvaluationError> {
        let request_line = match check {
            AccessCheck::Path { path, .. } => format!("{verb} {path}"),
            AccessCheck::Group { group, .. } => format!("{verb} {group}/"),
            AccessCheck::Resource(check) => format!("{verb} {}/{}", check.group, check.resource),
        };
        let allow = self.case.get("allow").and_then(Json::as_array);
        let allowed = allow.is_some_and(|all| all.iter().any(|each| each == &request_line));
        Ok(Decision {
            allowed,
            ..Decision::default()
        })
    }
}

/// The result of this crate, in the form of Kubernetes' result.
fn evaluate(case: &Json, environment: &impl Fn(bool) -> Environment) -> Json {
    let text = |name: &str| case.get(name).and_then(Json::as_str);
    let flag = |name: &str| case.get(name).and_then(Json::as_bool).unwrap_or(false);
    let result_type = match text("returns") {
        Some("bool") => ResultType::Bool,
        Some("configuration") => ResultType::Configuration,
        Some("jsonpatch") => ResultType::JsonPatch,
        _ => ResultType::Any,
    };
    let mut environment = environment(!flag("noParams"));
    let mut variables = BTreeMap::new();
    let declared = case.get("variables").and_then(Json::as_array);
    for variable in declared.into_iter().flatten() {
        let name = variable["name"].as_str().unwrap();
        let program = environment
            .compile(variable["expression"].as_str().unwrap(), ResultType::Any)
            .expect("a variable of a case compiles");
        environment.declare_variable(name, program.clone());
        variables.insert(name.to_owned(), program);
    }
    let patches = matches!(
        result_type,
        ResultType::Configuration | ResultType::JsonPatch
    );
    if flag("patchTypes") || patches {
        environment = environment.with_patch_types();
    }
    let program = match environment.compile(text("expression").unwrap(), result_type) {
        Ok(program) => program,
        Err(error) => return json!({"compileError": error.to_string()}),
    };
    let variables = Variables { case, variables };
    let value = match program.evaluate(&variables, &mut Budget::default()) {
        Ok(value) => value,
        Err(error) => return json!({"error": error.to_string()}),
    };
    let ty = program.result_type().to_string();
    // Kubernetes' program converts these values as it converts the value of a patch.
    let shown = if !patches {
        let patch = Patch {
            op: "".into(),
            path: "".into(),
            from: "".into(),
            value: Some(value),
        };
        patch
            .to_json()
            .map(|mut operation| operation["value"].take())
    } else {
        value.to_json()
    };
    match shown {
        Ok(value) => json!({"type": ty, "value": value}),
        Err(_) if result_type == ResultType::Any => json!({"type": ty, "opaque": ""}),
        Err(error) => json!({"error": error.to_string()}),
    }
}

/// Whether two results are equal: value and type, or refused, or failed. Error texts
/// may differ.
fn agree(expected: &Json, ours: &Json) -> bool {
    for kind in ["compileError", "error", "opaque"] {
        if expected.get(kind).is_some() {
            return ours.get(kind).is_some() && expected.get("type") == ours.get("type");
        }
    }
    expected.get("type") == ours.get("type") && same(&expected["value"], &ours["value"])
}

/// Equal as JSON: `1` and `1.0` are.
fn same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, value)| b.get(name).is_some_and(|other| same(value, other)))
        }
        _ => a == b,
    }
}

/// Checks the cases of a file. `environment` declares the variables; its argument says
/// whether `params` is one of them.
pub fn check(path: &str, environment: impl Fn(bool) -> Environment) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let mut cases: Vec<Json> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    if let Ok(oracle) = std::env::var("TAUTLINE_CEL_ORACLE") {
        record(&oracle, &mut cases);
        let lines: Vec<String> = cases.iter().map(Json::to_string).collect();
        std::fs::write(&path, format!("[\n{}\n]\n", lines.join(",\n"))).unwrap();
    }
    assert!(!cases.is_empty());
    let mut wrong = Vec::new();
    for case in &cases {
        assert_eq!(
            case.get("ours").is_some(),
            case.get("why").is_some(),
            "{case}"
        );
        let expected = case.get("ours").unwrap_or(&case["kubernetes"]);
        let ours = evaluate(case, &environment);
        if !agree(expected, &ours) {
            wrong.push(format!(
                "{}\n    expected {expected}\n    found  {ours}",
                case["expression"]
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

/// Records the results of Kubernetes' code.
fn record(oracle: &str, cases: &mut [Json]) {
    let mut child = Command::new(oracle)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines: String = cases.iter().map(|case| format!("{case}\n")).collect();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let results: Vec<Json> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(results.len(), cases.len());
    for (case, mut result) in cases.iter_mut().zip(results) {
        result.as_object_mut().unwrap().remove("cost");
        case["kubernetes"] = result;
    }
}
