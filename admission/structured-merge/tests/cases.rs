use serde_json::{Value, json};
use tautline_structured_merge::{MAX_DEPTH, MergeError, Schema, Schemas, Shape, apply};

#[expect(clippy::expect_used, reason = "without it there is nothing to test")]
fn pod() -> Schema {
    let pod = Schemas::bundled().kind("", "v1", "Pod");
    pod.expect("the bundled schemas have pods")
}

fn live() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "1", "b": "2"}, "finalizers": ["x/a", "x/b"]},
        "spec": {
            "containers": [
                {"name": "web", "image": "web:1", "env": [{"name": "A", "value": "1"}]},
                {"name": "side", "image": "side:1", "ports": [{"containerPort": 80, "protocol": "TCP"}]},
            ],
            "tolerations": [{"key": "k", "operator": "Exists"}],
        },
    })
}

fn merged(configuration: &Value) -> Result<Value, MergeError> {
    apply(&pod(), &live(), configuration)
}

#[test]
fn lists_merge_by_their_keys_and_maps_by_theirs() {
    let result = merged(&json!({
        "metadata": {"labels": {"b": "3", "c": "4"}},
        "spec": {"containers": [
            {"name": "side", "env": [{"name": "B", "value": "2"}]},
            {"name": "new", "image": "new:1"},
        ]},
    }));
    let mut expected = live();
    expected["metadata"]["labels"] = json!({"a": "1", "b": "3", "c": "4"});
    expected["spec"]["containers"][1]["env"] = json!([{"name": "B", "value": "2"}]);
    let containers = expected["spec"]["containers"].as_array_mut();
    containers
        .expect("a list")
        .push(json!({"name": "new", "image": "new:1"}));
    assert_eq!(result, Ok(expected));
}

#[test]
fn a_key_that_is_left_out_has_its_default() {
    let ports = json!({"spec": {"containers": [
        {"name": "side", "ports": [{"containerPort": 80, "name": "http"}]},
    ]}});
    let result = merged(&ports).expect("it applies");
    assert_eq!(
        result["spec"]["containers"][1]["ports"],
        json!([{"containerPort": 80, "protocol": "TCP", "name": "http"}])
    );
    let nameless = json!({"spec": {"containers": [{"image": "x"}]}});
    let result = merged(&nameless).expect("it applies");
    assert_eq!(result["spec"]["containers"][2], json!({"image": "x"}));
}

#[test]
fn sets_are_joined_in_the_order_of_the_configuration() {
    let result = merged(&json!({"metadata": {"finalizers": ["x/c", "x/a"]}}));
    let finalizers = &result.expect("it applies")["metadata"]["finalizers"];
    assert_eq!(*finalizers, json!(["x/c", "x/a", "x/b"]));

    let swapped = json!({"spec": {"containers": [{"name": "side"}, {"name": "web"}]}});
    let result = merged(&swapped).expect("it applies");
    assert_eq!(result["spec"]["containers"][0]["name"], "side");
    assert_eq!(result["spec"]["containers"][1]["image"], "web:1");
}

#[test]
fn unconfigured_fields_stay() {
    for nothing in [
        json!({}),
        json!({"spec": {}}),
        json!({"spec": {"containers": []}}),
        json!({"metadata": {"labels": {}}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment"}),
    ] {
        assert_eq!(merged(&nothing), Ok(live()), "{nothing}");
    }
    // A newer API server's field, and equal elements.
    let mut strange = live();
    strange["spec"]["fromTheFuture"] = json!([1]);
    strange["metadata"]["finalizers"] = json!(["x/a", "x/a"]);
    let result = apply(&pod(), &strange, &json!({"spec": {"priority": 5.0}}));
    strange["spec"]["priority"] = json!(5);
    assert_eq!(result, Ok(strange));
}

#[test]
fn refusals_name_the_place_and_the_fix() {
    let container = |fields: Value| json!({"spec": {"containers": [fields]}});
    for (configuration, message) in [
        (json!([]), ": an apply configuration is an object"),
        (
            json!({"spec": {"nodeSelctor": {}}}),
            "spec.nodeSelctor: the schema declares no such field; see its spelling",
        ),
        (
            container(json!({"name": "web", "image": 3})),
            "spec.containers[name=\"web\"].image: is a number, must be a string",
        ),
        (
            container(json!({"name": "web", "ports": [{"containerPort": 1.5}]})),
            "spec.containers[name=\"web\"].ports[containerPort=1.5].containerPort: is a number, \
             must be a whole number of 32 bits",
        ),
        (
            json!({"spec": {"priority": 99_999_999_999_i64}}),
            "spec.priority: is a number, must be a whole number of 32 bits",
        ),
        (
            container(json!({"name": "web", "resources": {"limits": {"nvidia.com/gpu": "one"}}})),
            "spec.containers[name=\"web\"].resources.limits[\"nvidia.com/gpu\"]: is a string, \
             must be a quantity",
        ),
        (
            json!({"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}),
            "spec.containers[name=\"a\"]: is there twice; name it once",
        ),
        (
            json!({"spec": {"containers": ["a"]}}),
            "spec.containers[0]: is a string, where the list holds objects by name",
        ),
        (
            container(json!({"name": "a", "env": [{"name": null}]})),
            "spec.containers[name=\"a\"].env[name=null].name: null cannot be applied; leave the \
             field out",
        ),
        (
            json!({"spec": {"tolerations": []}}),
            "spec.tolerations: is atomic: applying a part would drop the rest; use a JSONPatch \
             for it instead",
        ),
        (
            json!({"metadata": {"labels": null}}),
            "metadata.labels: null cannot be applied; leave the field out",
        ),
        (
            json!({"metadata": {"creationTimestamp": "today"}}),
            "metadata.creationTimestamp: is a string, must be a date and time \
             (2026-01-02T03:04:05Z)",
        ),
    ] {
        let refused = merged(&configuration).expect_err("it must be refused");
        assert_eq!(refused.to_string(), message);
        assert!(!refused.live);
    }
    let refused = apply(&pod(), &json!({"spec": 1}), &json!({})).expect_err("no pod");
    assert_eq!(
        refused.to_string(),
        "object, spec: is a number, must be an object"
    );
    assert!(apply(&pod(), &json!(1), &json!({})).is_err());
}

#[test]
fn deep_values_are_refused_before_they_are_walked() {
    let document = json!({"components": {"schemas": {"Free": {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Free"}],
    }}}});
    let schemas = Schemas::read(document.to_string().as_bytes()).expect("it reads");
    let free = schemas.kind("", "v1", "Free").expect("it is there");
    let outer = |inner, _| Value::Object([("a".to_owned(), inner)].into_iter().collect());
    let nested = |levels: usize| (0..levels).fold(json!(1), outer);
    let deepest = nested(MAX_DEPTH - 1);
    assert_eq!(apply(&free, &deepest, &deepest), Ok(deepest.clone()));
    for levels in [MAX_DEPTH, 5_000] {
        let deep = nested(levels);
        for (live, configuration, of_live) in [(&deep, &json!({}), true), (&deepest, &deep, false)]
        {
            let refused = apply(&free, live, configuration).expect_err("too deep");
            assert_eq!(refused.live, of_live);
            assert_eq!(refused.reason, "nested deeper than 128 levels");
        }
    }
}

#[test]
fn schemas_lead_from_place_to_place() {
    let spec = pod().field("spec").expect("spec");
    let containers = spec.field("containers").expect("containers");
    assert_eq!(containers.shape(), Shape::List);
    assert_eq!(containers.keys(), ["name"]);
    assert!(!containers.is_atomic());
    let container = containers.element().expect("a container");
    assert_eq!(container.shape(), Shape::Object);
    assert!(container.fields().any(|name| name == "image"));
    assert!(container.field("imagee").is_none());
    let limits = container
        .field("resources")
        .and_then(|resources| resources.field("limits"))
        .expect("limits");
    assert_eq!(limits.shape(), Shape::Map);
    assert_eq!(limits.element().map(|e| e.shape()), Some(Shape::Quantity));
    assert_eq!(
        limits.field("cpu").map(|e| e.shape()),
        Some(Shape::Quantity)
    );
    assert!(spec.field("tolerations").expect("tolerations").is_atomic());
    assert!(
        spec.field("nodeSelector")
            .expect("nodeSelector")
            .is_atomic()
    );
    let timestamp = pod()
        .field("metadata")
        .and_then(|m| m.field("creationTimestamp"));
    assert_eq!(timestamp.map(|t| t.shape()), Some(Shape::Time));

    for kind in [
        "ConfigMap",
        "Namespace",
        "Node",
        "PersistentVolumeClaim",
        "Secret",
        "Service",
    ] {
        assert!(Schemas::bundled().kind("", "v1", kind).is_some(), "{kind}");
    }
    for (group, version, kind) in [
        ("apps", "v1", "StatefulSet"),
        ("autoscaling", "v2", "HorizontalPodAutoscaler"),
        ("batch", "v1", "CronJob"),
    ] {
        assert!(
            Schemas::bundled().kind(group, version, kind).is_some(),
            "{kind}"
        );
    }
    assert!(Schemas::bundled().kind("", "v2", "Pod").is_none());
}

#[test]
fn documents_that_mean_nothing_are_refused() {
    let one = |schema: Value| json!({"components": {"schemas": {"a.Thing": schema}}}).to_string();
    for (document, message) in [
        (
            "{".to_owned(),
            "the OpenAPI document is no JSON: EOF while parsing an object at line 1 column 1",
        ),
        (
            "{}".to_owned(),
            "the OpenAPI document has no components.schemas",
        ),
        (
            "[".repeat(5_000),
            "the OpenAPI document is no JSON: recursion limit exceeded at line 1 column 128",
        ),
        (
            one(json!({"type": "array"})),
            "OpenAPI definition a.Thing: an array without items",
        ),
        (
            one(json!({"type": "object", "properties": {"list": {
                "type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}}})),
            "OpenAPI definition a.Thing: list: x-kubernetes-list-type map without \
             x-kubernetes-list-map-keys",
        ),
        (
            one(json!({"type": "object", "x-kubernetes-map-type": "loose"})),
            "OpenAPI definition a.Thing: x-kubernetes-map-type \"loose\" is unknown",
        ),
        (
            one(json!({"type": "tuple"})),
            "OpenAPI definition a.Thing: type \"tuple\" is not a JSON type",
        ),
    ] {
        let refused = Schemas::read(document.as_bytes()).expect_err("it must be refused");
        assert_eq!(refused.to_string(), message);
    }
}
