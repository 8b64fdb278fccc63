//! Every function of Kubernetes 1.36's environment, against what its own
//! compiler said: `tests/cel/*.json`, a case a line. `kubernetes` is its answer,
//! recorded; `ours` the answer wanted here where it differs, and `why`.
//!
//! To record anew: `tests/oracle/build`, then run this test with
//! `TAUTLINE_CEL_ORACLE` set to the absolute path of the program `cel` that was
//! built, and look at what changed.

#![expect(
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
use tautline_mutating_policy::cel::{
    Budget, Check, Decision, Declared, Environment, Names, Program, ResourceCheck, Returns,
    RunError, Subject, Value,
};

/// What a case's expressions see.
struct World<'a> {
    case: &'a Json,
    variables: BTreeMap<String, Program>,
}

impl Names for World<'_> {
    fn get(&self, name: &str, budget: &mut Budget) -> Option<Result<Value, RunError>> {
        if let Some(variable) = name.strip_prefix("variables.") {
            return Some(self.variables.get(variable)?.run(self, budget));
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
                Value::Check(Arc::new(Check::Resource(ResourceCheck {
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
                // What a request always has.
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

    fn authorize(&self, check: &Check, verb: &str) -> Result<Decision, RunError> {
        let asked = match check {
            Check::Path { path, .. } => format!("{verb} {path}"),
            Check::Group { group, .. } => format!("{verb} {group}/"),
            Check::Resource(check) => format!("{verb} {}/{}", check.group, check.resource),
        };
        let allow = self.case.get("allow").and_then(Json::as_array);
        let allowed = allow.is_some_and(|all| all.iter().any(|each| each == &asked));
        Ok(Decision {
            allowed,
            ..Decision::default()
        })
    }
}

/// Our answer to a case, in the form of Kubernetes'.
fn answer(case: &Json) -> Json {
    let text = |name: &str| case.get(name).and_then(Json::as_str);
    let flag = |name: &str| case.get(name).and_then(Json::as_bool).unwrap_or(false);
    let returns = match text("returns") {
        Some("bool") => Returns::Bool,
        Some("configuration") => Returns::Configuration,
        Some("jsonpatch") => Returns::JsonPatch,
        _ => Returns::Any,
    };
    let mut declared = Declared {
        params: !flag("noParams"),
        authorizer: true,
        ..Declared::default()
    };
    let mut variables = BTreeMap::new();
    for variable in case
        .get("variables")
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
    {
        let name = variable["name"].as_str().unwrap();
        let program = Environment::new(declared.clone())
            .compile(variable["expression"].as_str().unwrap(), Returns::Any)
            .expect("a variable of a case compiles");
        declared.variables.push((name.to_owned(), program.clone()));
        variables.insert(name.to_owned(), program);
    }
    declared.patch_types =
        flag("patchTypes") || matches!(returns, Returns::Configuration | Returns::JsonPatch);
    let program = match Environment::new(declared).compile(text("expression").unwrap(), returns) {
        Ok(program) => program,
        Err(error) => return json!({"compileError": error.to_string()}),
    };
    let world = World { case, variables };
    let value = match program.run(&world, &mut Budget::default()) {
        Ok(value) => value,
        Err(error) => return json!({"error": error.to_string()}),
    };
    let of = program.returns().to_string();
    // A value of a variable or a condition takes the way of a patch's.
    let shown = if returns == Returns::Any || returns == Returns::Bool {
        let patch = tautline_mutating_policy::cel::Patch {
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
        Ok(value) => json!({"type": of, "value": value}),
        Err(_) if returns == Returns::Any => json!({"type": of, "opaque": ""}),
        Err(error) => json!({"error": error.to_string()}),
    }
}

/// Whether two answers say the same: the value and its type, or that it is
/// refused, or fails. The words of errors are each their own.
fn agree(wanted: &Json, ours: &Json) -> bool {
    for kind in ["compileError", "error", "opaque"] {
        if wanted.get(kind).is_some() {
            return ours.get(kind).is_some() && wanted.get("type") == ours.get("type");
        }
    }
    wanted.get("type") == ours.get("type") && same(&wanted["value"], &ours["value"])
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

fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cel")
        .join(format!("{name}.json"));
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
        let wanted = case.get("ours").unwrap_or(&case["kubernetes"]);
        let ours = answer(case);
        if !agree(wanted, &ours) {
            wrong.push(format!(
                "{}\n    wanted {wanted}\n    found  {ours}",
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

/// Asks the oracle for every answer.
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
    let answers: Vec<Json> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), cases.len());
    for (case, mut answer) in cases.iter_mut().zip(answers) {
        answer.as_object_mut().unwrap().remove("cost");
        case["kubernetes"] = answer;
    }
}

macro_rules! tables {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            check(stringify!($name));
        }
    )*};
}

tables!(
    authorizer,
    configuration,
    convert,
    format,
    formats,
    lists,
    macros,
    net,
    objects,
    operators,
    optional,
    ours,
    patches,
    quantity,
    regex,
    semver,
    strings,
    time,
    url
);
