//! Wrong, expensive or hostile policies do not affect other policies, and every request ends.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests are no tests to the lint"
)]

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tautline_mutating_policy::{
    FaultKind, Limits, Outcome, Policies, Request, Settings, StaticCluster, Verdict,
};

fn policy(name: &str, failure: &str, variables: Value, mutation: Value) -> [Value; 2] {
    let policy = json!({"apiVersion": "tautline.io/v1alpha1", "kind": "MutationPolicy",
        "metadata": {"name": name}, "spec": {
            "failurePolicy": failure, "reinvocationPolicy": "IfNeeded", "variables": variables,
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["pods"]}]},
            "mutations": [mutation]}});
    let binding = json!({"apiVersion": "tautline.io/v1alpha1", "kind": "MutationPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name}});
    [policy, binding]
}

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

fn good() -> [Value; 2] {
    let expression = "Object{metadata: Object.metadata{labels: {\"good\": \"yes\"}}}";
    policy("m-good", "Fail", json!([]), apply(expression))
}

fn pod() -> Value {
    let containers: Vec<Value> = (0..100)
        .map(|i| json!({"name": format!("c{i}"), "image": "example.com/app:1"}))
        .collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
        "spec": {"containers": containers}})
}

fn run(manifests: &[Value], settings: &Settings) -> (Outcome, usize) {
    let (policies, report) = Policies::load(manifests);
    let request = Request::create(pod()).unwrap();
    let outcome = policies.mutate(&request, &StaticCluster::default(), settings);
    (outcome, report.faults.len())
}

fn is_good(outcome: &Outcome) -> bool {
    matches!(&outcome.verdict, Verdict::Changed { object, .. }
        if object["metadata"]["labels"]["good"] == "yes")
}

#[test]
fn only_invalid_policies_are_skipped() {
    let deep = format!("{}1{}", "(".repeat(6000), ")".repeat(6000));
    let long = format!(
        "Object{{}} == Object{{}} ? Object{{}} : {}",
        "Object{} ".repeat(9000)
    );
    let chain = format!(
        "Object{{metadata: Object.metadata{{name: 'a'{}}}}}",
        " + 'a'".repeat(3000)
    );
    let index = format!("Object{{metadata: object{}}}", "[0]".repeat(5000));
    for bad in [
        "Object{",
        "1",
        &deep,
        &long,
        &chain,
        &index,
        "params",
        "\u{0}",
        "Object{metadata: nothing}",
    ] {
        let mut manifests = good().to_vec();
        manifests.extend(policy("a-bad", "Fail", json!([]), apply(bad)));
        let (outcome, faults) = run(&manifests, &Settings::default());
        // Deep and long ones may compile; then they must end in their own error.
        let refused = matches!(outcome.verdict, Verdict::Refused(_));
        assert!(
            is_good(&outcome) && faults > 0 || refused && faults == 0,
            "{bad:.40}"
        );
    }
    let mut manifests = good().to_vec();
    manifests.extend([
        json!({"apiVersion": "tautline.io/v1alpha1", "kind": "MutationPolicy"}),
        json!({"kind": 7}),
        json!([]),
        Value::Null,
    ]);
    assert!(is_good(&run(&manifests, &Settings::default()).0));
}

#[test]
fn greedy_policies_exhaust_only_their_own_budget() {
    let list = "[0,1,2,3,4,5,6,7,8,9]";
    let loops = format!(
        "{list}.map(a, {list}.map(b, {list}.map(c, {list}.map(d, {list}.map(e, {list}.map(f, 'x'))))))"
    );
    let doubled = json!((0..45)
        .map(|i| match i {
            0 => json!({"name": "v0", "expression": "'xxxxxxxxxx'"}),
            _ => json!({"name": format!("v{i}"), "expression": format!("variables.v{0} + variables.v{0}", i - 1)}),
        })
        .collect::<Vec<_>>());
    let greedy = [
        policy(
            "a-loops",
            "Ignore",
            json!([]),
            apply(&format!(
                "Object{{metadata: Object.metadata{{labels: {{'n': string(size({loops}))}}}}}}"
            )),
        ),
        policy(
            "b-doubles",
            "Ignore",
            doubled,
            apply("Object{metadata: Object.metadata{labels: {'n': variables.v44}}}"),
        ),
        policy(
            "c-regex",
            "Ignore",
            json!([]),
            apply(
                "Object{metadata: Object.metadata{labels: {'n': string('aaaaaaaaaaaaaaaaaaaaaaaaaaaa!'.matches('(a+)+$'))}}}",
            ),
        ),
        policy(
            "d-grows",
            "Ignore",
            json!([]),
            patch(
                "object.spec.containers.map(c, JSONPatch{op: 'copy', from: '/spec', path: '/spec/containers/0/x'})",
            ),
        ),
    ];
    let mut manifests = good().to_vec();
    manifests.extend(greedy.into_iter().flatten());
    let settings = Settings {
        limits: Limits {
            deadline: Some(Instant::now() + Duration::from_secs(30)),
            ..Limits::default()
        },
        ..Settings::default()
    };
    let (outcome, faults) = run(&manifests, &settings);
    assert_eq!(faults, 0);
    let budget = |name: &str| {
        let of = |f: &&tautline_mutating_policy::Fault| &*f.policy == name && f.ignored;
        outcome.faults.iter().find(of).map(|f| f.kind)
    };
    assert_eq!(budget("a-loops"), Some(FaultKind::Budget));
    assert_eq!(budget("b-doubles"), Some(FaultKind::Budget));
    assert!(budget("d-grows").is_some(), "{:?}", outcome.faults);
    assert!(is_good(&outcome), "{:?}", outcome.verdict);
}

/// On the stack of a thread that tokio makes for blocking work.
fn on_small_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(2 << 20);
        let thread = thread.spawn_scoped(scope, work).unwrap();
        thread.join().unwrap()
    })
}

/// Variables `v0`, `v1`, ..: the first of them given, each other one made of the
/// one before.
fn chain(count: usize, first: &str, next: impl Fn(&str) -> String) -> Value {
    let expression = |i: usize| match i {
        0 => first.to_owned(),
        _ => next(&format!("variables.v{}", i - 1)),
    };
    let one = |i| json!({"name": format!("v{i}"), "expression": expression(i)});
    (0..count).map(one).collect()
}

fn labelled(value: &str) -> Value {
    apply(&format!(
        "Object{{metadata: Object.metadata{{labels: {{'good': {value}}}}}}}"
    ))
}

#[test]
fn chains_of_variables_are_bounded_together() {
    let brackets = |around: &str, n: usize, m: usize| {
        [&"[".repeat(n), around, &"]".repeat(n), &"[0]".repeat(m)].concat()
    };
    let cases: [(&str, Value); 6] = [
        ("more than 256", chain(700, "'x'", str::to_owned)),
        ("nested deeper than 100", chain(250, "'x'", str::to_owned)),
        (
            "nested deeper than 100",
            chain(60, "'x'", |v| brackets(v, 45, 45)),
        ),
        (
            "build lists",
            chain(50, "['x']", |v| {
                format!("{v}.map(x, {})", brackets("x", 40, 0))
            }),
        ),
        (
            "build lists",
            chain(2, "['x']", |v| {
                format!(
                    "{v}{}",
                    format!(".map(x, {})", brackets("x", 40, 0)).repeat(40)
                )
            }),
        ),
        (
            "build lists",
            chain(2, "optional.of('x')", |v| {
                format!(
                    "{v}{}",
                    format!(".optMap(x, {})", brackets("x", 40, 0)).repeat(40)
                )
            }),
        ),
    ];
    for (message, variables) in cases {
        let last = format!("variables.v{}", variables.as_array().unwrap().len() - 1);
        let [bad, binding] = policy(
            "a-bad",
            "Fail",
            variables,
            labelled(&format!("string({last})")),
        );
        let manifests = [vec![bad, binding], good().to_vec()].concat();
        let (outcome, report) = on_small_stack(|| {
            let (policies, report) = Policies::load(&manifests);
            let request = Request::create(pod()).unwrap();
            let settings = Settings::default();
            (
                policies.mutate(&request, &StaticCluster::default(), &settings),
                report,
            )
        });
        let fault = report.faults[0].to_string();
        assert!(
            fault.contains(message) && fault.contains("spec.variables"),
            "{fault}"
        );
        assert!(
            message.contains("256") || fault.contains("line 1, column"),
            "{fault}"
        );
        assert!(is_good(&outcome), "{message}");
    }
}

#[test]
fn deepest_accepted_policy_fits_the_stack() {
    let lists = |n: usize| ["[".repeat(n), "'yes'".into(), "]".repeat(n)].concat();
    let nest = |v: &str| format!("[{v}][0]");
    let pairs = |v: &str| format!("[1].map(x, {v})[0]");
    let deep = [
        (chain(96, "'yes'", str::to_owned), "variables.v95"),
        (chain(32, "'yes'", nest), "variables.v31"),
        (chain(32, "'yes'", pairs), "variables.v31"),
        (
            chain(2, &lists(90), str::to_owned),
            "variables.v1 == variables.v0 && dyn(variables.v1) != dyn(object) ? 'yes' : 'no'",
        ),
    ];
    for (variables, value) in deep {
        let manifests = policy("a-deep", "Fail", variables, labelled(value));
        let (outcome, faults) = on_small_stack(|| {
            let settings = Settings {
                full_detail: true,
                ..Settings::default()
            };
            run(&manifests, &settings)
        });
        assert_eq!(faults, 0, "{value}");
        assert!(is_good(&outcome), "{value}: {:?}", outcome.verdict);
    }
}

#[test]
fn patches_cannot_nest_an_object_without_limit() {
    let lists = ["[".repeat(90), "1".into(), "]".repeat(90)].concat();
    let whence = "JSONPatch{op: 'add', path: '/x', value: {'a': 1}}";
    for more in [
        format!("JSONPatch{{op: 'add', path: '/x{}', value: {lists}}}", "/0".repeat(80)),
        format!("JSONPatch{{op: 'add', path: '/x{}/y', value: {lists}}}", "/a".repeat(60)),
        "JSONPatch{op: 'copy', from: '/x', path: '/x/a'}".to_owned(),
        "JSONPatch{op: 'move', from: '/x', path: '/y'}, JSONPatch{op: 'add', path: '/x', value: {'a': 1}}, \
         JSONPatch{op: 'move', from: '/y', path: '/x/a'}"
            .to_owned(),
    ] {
        let expression = |more: &str| patch(&format!("[{more}]"));
        let mut manifests = policy("a-grows", "Fail", json!([]), expression(whence));
        let mutations = &mut manifests[0]["spec"]["mutations"];
        let mutations = mutations.as_array_mut().unwrap();
        mutations.extend(vec![expression(&more); 500]);
        manifests[0]["spec"]["matchConstraints"]["resourceRules"][0]["apiGroups"] = json!(["*"]);
        manifests[0]["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = json!(["*"]);
        let outcome = on_small_stack(|| {
            let (policies, report) = Policies::load(&manifests);
            assert_eq!(report.faults, []);
            let object = json!({"apiVersion": "example.com/v1", "kind": "Thing",
                "metadata": {"name": "a"}});
            let request = Request::create(object).unwrap();
            policies.mutate(&request, &StaticCluster::default(), &Settings::default())
        });
        assert!(matches!(outcome.verdict, Verdict::Refused(_)), "{more}");
    }
}

#[test]
fn passed_deadline_ends_every_mutation() {
    let settings = Settings {
        limits: Limits {
            deadline: Some(Instant::now()),
            ..Limits::default()
        },
        ..Settings::default()
    };
    let (outcome, _) = run(&good(), &settings);
    assert!(matches!(outcome.verdict, Verdict::Refused(_)));
    assert_eq!(outcome.faults[0].kind, FaultKind::Budget);
}

#[test]
fn unknown_fields_are_reported() {
    let misspelt = "true ? Object{} :\n Object{spec: Object.spec{contianers: []}}";
    let report = |manifests: &[Value]| Policies::load(manifests).1;
    let mut manifests = policy("a", "Fail", json!([]), apply(misspelt));
    let found = report(&manifests);
    assert_eq!(found.faults, []);
    let [warning] = found.warnings.as_slice() else {
        panic!("{:?}", found.warnings);
    };
    assert_eq!(
        warning.field,
        "spec.mutations[0].applyConfiguration.expression"
    );
    let message = &warning.message;
    assert!(
        message.starts_with("line 2, column 39: ") && message.contains("contianers"),
        "{message}"
    );
    let rule = "/spec/matchConstraints/resourceRules/0/resources";
    *manifests[0].pointer_mut(rule).unwrap() = json!(["*"]);
    assert_eq!(report(&manifests).warnings, []);
    assert_eq!(report(&good()).warnings, []);
}

#[test]
fn odd_requests_do_no_harm() {
    let (policies, _) = Policies::load(&good());
    for object in [
        Value::Null,
        json!(7),
        json!([]),
        json!({}),
        json!({"metadata": 1, "spec": []}),
    ] {
        let mut request = Request::create(pod()).unwrap();
        request.object = object.into();
        policies.mutate(&request, &StaticCluster::default(), &Settings::default());
    }
    assert!(serde_json::from_value::<Request>(json!({})).is_ok());
    assert!(serde_json::from_value::<Request>(json!({"kind": "Pod"})).is_err());
}
