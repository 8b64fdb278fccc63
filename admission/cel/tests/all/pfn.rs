//! The expressions of Preferred Networks' article on mutating admission policies (2024),
//! as published, in the spelling of that year.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

use serde_json::{Value as Json, json};
use tautline_cel::{
    Budget, CompileError, Environment, EvaluationError, ObjectSchema, Program, Resolver,
    ResultType, Type, Value,
};

const NVIDIA: &str = include_str!("../pfn/nvidia.cel");
const RDMA: &str = include_str!("../pfn/rdma.cel");
const RDMA_VARIABLES: &str = include_str!("../pfn/rdma-variables.cel");
const LABELS: &str = include_str!("../pfn/labels.cel");

struct Variables {
    object: Json,
    params: Json,
    variables: Vec<(String, Program)>,
}

impl Resolver for Variables {
    fn resolve(&self, name: &str, budget: &mut Budget) -> Option<Result<Value, EvaluationError>> {
        if let Some(variable) = name.strip_prefix("variables.") {
            let (_, program) = self.variables.iter().find(|(name, _)| name == variable)?;
            return Some(program.evaluate(self, budget));
        }
        Some(Ok(Value::from(match name {
            "object" => &self.object,
            "params" => &self.params,
            _ => &Json::Null,
        })))
    }
}

fn environment() -> Environment {
    Environment::new()
        .declare("object", Type::Dyn)
        .declare("params", Type::Dyn)
        .with_patch_types()
}

fn compile(source: &str) -> Result<Program, CompileError> {
    environment().compile(source, ResultType::Configuration)
}

fn run(source: &str, object: Json) -> Json {
    let params = json!({
        "nicLimits": {"preferred.jp/net1": 1, "preferred.jp/net2": 1},
        "annotations": "networking-rdma/net1 networking-rdma/net2",
    });
    let resolver = Variables {
        object,
        params,
        variables: Vec::new(),
    };
    let value = compile(source)
        .unwrap()
        .evaluate(&resolver, &mut Budget::default())
        .unwrap();
    value.to_json().unwrap()
}

#[test]
fn gpu_policy_hides_devices_from_containers_without_gpu() {
    let object = json!({"metadata": {"name": "p"}, "spec": {
        "containers": [
            {"name": "zero", "resources": {"limits": {"nvidia.com/gpu": "0"}}},
            {"name": "one", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
            {"name": "absent", "resources": {}},
        ],
        "initContainers": [{"name": "init", "resources": {"limits": {"cpu": "1"}}}],
    }});
    let none = json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}]);
    let expected = json!({"spec": {
        "containers": [{"name": "zero", "env": none}, {"name": "absent", "env": none}],
        "initContainers": [{"name": "init", "env": none}],
    }});
    assert_eq!(run(NVIDIA, object), expected);
}

#[test]
fn rdma_policy_adds_networks() {
    let pod = |annotations: Json| {
        json!({"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": [
            {"name": "a", "resources": {"limits": {"preferred.jp/rdma": "1"}}},
            {"name": "b", "resources": {}},
        ]}})
    };
    let expected = |networks: &str| {
        json!({
            "metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": networks}},
            "spec": {"containers": [
                {"name": "a", "resources": {"limits": {"preferred.jp/net1": 1, "preferred.jp/net2": 1}}},
            ]},
        })
    };
    assert_eq!(
        run(RDMA, pod(json!({}))),
        expected("networking-rdma/net1 networking-rdma/net2")
    );
    assert_eq!(
        run(RDMA, pod(json!({"k8s.v1.cni.cncf.io/networks": "mine"}))),
        expected("mine")
    );
    let plain = json!({"metadata": {}, "spec": {"containers": [{"name": "b", "resources": {}}]}});
    assert_eq!(
        run(RDMA, plain),
        json!({"metadata": {"annotations": {}}, "spec": {"containers": []}})
    );
}

#[test]
fn rdma_policy_runs_with_variables() {
    let mut environment = environment();
    let mut variables = Vec::new();
    for (name, source) in [
        (
            "containersWithLimits",
            "object.spec.containers.filter(ct, quantity(ct.resources.?limits[\"preferred.jp/rdma\"].orValue(\"0\")).asInteger() == 1)",
        ),
        (
            "isContainerWithLimitsExists",
            "variables.containersWithLimits.size() > 0",
        ),
    ] {
        let program = environment.compile(source, ResultType::Any).unwrap();
        environment.declare_variable(name, program.clone());
        variables.push((name.to_owned(), program));
    }
    let object = json!({"metadata": {}, "spec": {"containers": [
        {"name": "a", "resources": {"limits": {"preferred.jp/rdma": "1"}}}]}});
    let params = json!({"nicLimits": {"preferred.jp/net1": 1}, "annotations": "n"});
    let resolver = Variables {
        object,
        params,
        variables,
    };
    let condition = environment
        .compile("variables.isContainerWithLimitsExists", ResultType::Bool)
        .unwrap();
    let mut budget = Budget::default();
    assert!(matches!(
        condition.evaluate(&resolver, &mut budget),
        Ok(Value::Bool(true))
    ));
    let mutation = environment
        .compile(RDMA_VARIABLES, ResultType::Configuration)
        .unwrap();
    let configuration = mutation
        .evaluate(&resolver, &mut budget)
        .unwrap()
        .to_json()
        .unwrap();
    assert_eq!(
        configuration["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"],
        "n"
    );
    assert_eq!(
        configuration["spec"]["containers"][0]["resources"]["limits"],
        json!({"preferred.jp/net1": 1})
    );
}

#[test]
fn label_policy_adds_extended_resources() {
    let object = json!({"metadata": {"name": "p"}, "spec": {
        "containers": [
            {"resources": {"limits": {"cpu": "200m", "preferred.jp/mncore": "1"}}},
            {"resources": {"limits": {"preferred.jp/mncore": "1", "preferred.jp/with-binarysi": "1Mi", "x.io/none": "0"}}},
            {"resources": {}},
        ],
        "initContainers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    }});
    let expected = json!({"metadata": {"labels": {
        "preferred.jp--mncore": "", "preferred.jp--with-binarysi": "", "nvidia.com--gpu": "",
    }}});
    assert_eq!(run(LABELS, object), expected);
}

/// The fields of a pod that the article uses.
struct Pod;

impl ObjectSchema for Pod {
    fn has_field(&self, path: &[&str]) -> Option<bool> {
        let known = [
            "metadata",
            "metadata.labels",
            "metadata.annotations",
            "spec",
            "spec.containers",
            "spec.containers.name",
            "spec.containers.env",
            "spec.containers.env.name",
            "spec.containers.env.value",
            "spec.initContainers",
            "spec.initContainers.name",
        ];
        Some(known.contains(&path.join(".").as_str()))
    }
}

#[test]
fn object_fields_are_checked_against_the_schema() {
    let environment = environment().with_object_schema(std::sync::Arc::new(Pod));
    environment
        .compile(NVIDIA, ResultType::Configuration)
        .unwrap();
    for (source, line, column, named) in [
        (
            "Object{spec: Object.spec{container: []}}",
            1,
            37,
            "container",
        ),
        ("Object{\n  spek: Object.spek{}\n}", 2, 9, "spek"),
    ] {
        let error = environment
            .compile(source, ResultType::Configuration)
            .expect_err(source);
        let issue = &error.issues[0];
        assert_eq!((issue.line, issue.column), (line, column), "{error}");
        assert!(issue.message.contains(named), "{error}");
    }
}

#[test]
fn legacy_spelling_may_name_other_containers() {
    compile("Object{spec: Object.spec{initContainers: [Object.spec.containers.item{name: 'a'}]}}")
        .unwrap();
    compile("Object{spec: Object.spec{initContainers: [Object.spec.containers{name: 'a'}]}}")
        .expect_err("today's names follow the path");
    compile("Object{spec: Object.spec{volumes: [Object.spec.containers.item{name: 'a'}]}}")
        .expect_err("volumes are no containers");
}

#[test]
fn compile_error_lists_every_issue() {
    let error = compile("Object{\n  a: nothing,\n  b: 1 + 'x',\n  c: foo()\n}")
        .expect_err("three mistakes");
    let places: Vec<_> = error.issues.iter().map(|i| (i.line, i.column)).collect();
    assert_eq!(places, [(2, 6), (3, 8), (4, 6)], "{error}");
}

#[test]
fn expression_makes_at_most_two_authorizer_checks() {
    let environment = Environment::new().declare("authorizer", Type::AUTHORIZER);
    let one_check = "authorizer.path('/a').check('get').allowed()";
    environment
        .compile(&[one_check, one_check].join(" && "), ResultType::Bool)
        .unwrap();
    environment
        .compile(
            &[one_check, one_check, one_check].join(" && "),
            ResultType::Bool,
        )
        .expect_err("three");
}
