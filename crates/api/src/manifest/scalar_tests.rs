//! What kubectl and the API server make of scalars; testdata/scalars.json names the libraries that gave the values.

use k8s_openapi::{
    api::core::v1::{Container, Pod},
    apimachinery::pkg::util::intstr::IntOrString,
};
use serde_json::Value;
use tautline_core::quantity;

use crate::manifest::{Item, Manifest, documents, read};

fn value(scalar: &str) -> Option<Value> {
    let mut document = documents(&format!("a: {scalar}\n")).ok()?.remove(0);
    let value = document.value["a"].take();
    document.invalid.is_empty().then_some(value)
}

fn manifest(fields: &str) -> Option<Manifest> {
    read(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n{fields}"
    ))
    .ok()
}

fn pod(fields: &str) -> Option<Pod> {
    match manifest(fields)?.objects.remove(0).1 {
        Item::Pod(pod) => Some(*pod),
        other => panic!("{other:?}"),
    }
}

fn container(fields: &str) -> Option<Container> {
    let pod = pod(&format!(
        "spec:\n  containers:\n  - name: m\n    {fields}\n"
    ))?;
    Some(pod.spec?.containers.remove(0))
}

fn replicas(scalar: &str) -> Option<i64> {
    let text = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: x}}\nspec:\n  replicas:\n    {scalar}\n"
    );
    let document = documents(&text).ok()?.remove(0).value;
    read(&text).ok()?;
    document["spec"]["replicas"].as_i64()
}

fn milli_cpu(scalar: &str) -> Option<i64> {
    let fields = format!("resources:\n     requests:\n      cpu:\n       {scalar}");
    let requests = container(&fields)?.resources?.requests?;
    quantity::parse_milli(&requests["cpu"].0).ok()
}

fn port(scalar: &str) -> Option<String> {
    let fields = format!("livenessProbe:\n     httpGet:\n      port:\n       {scalar}");
    let probe = container(&fields)?.liveness_probe?;
    Some(match probe.http_get?.port {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => format!("{text:?}"),
    })
}

#[test]
fn scalars_are_read_as_kubectl_and_the_api_server_read_them() {
    let table: Value = serde_json::from_str(include_str!("testdata/scalars.json")).unwrap();
    let rows = table["scalars"].as_array().unwrap();
    assert!(rows.len() >= 60);
    let mut wrong = Vec::new();
    for row in rows {
        let scalar = row["yaml"].as_str().unwrap();
        let mut check = |field: &str, ours: Option<Value>| {
            let right = row.get(field).cloned();
            let number = |v: &Option<Value>| v.as_ref().and_then(Value::as_f64);
            let is_same = match (number(&ours), number(&right)) {
                (Some(ours), Some(right)) => (ours - right).abs() <= right.abs() * 1e-15,
                _ => ours == right,
            };
            if !is_same {
                wrong.push(format!(
                    "{field} of {scalar:?}: {ours:?} instead of {right:?}"
                ));
            }
        };
        check("json", value(scalar));
        check("int32", replicas(scalar).map(Value::from));
        let of_spec = |field: &str| {
            pod(&format!(
                "spec:\n  containers: []\n  {field}:\n    {scalar}\n"
            ))
        };
        let host = of_spec("hostNetwork").map(|pod| pod.spec.unwrap().host_network);
        check("bool", host.map(|on| on.unwrap_or_default().into()));
        let node = of_spec("nodeName").map(|pod| pod.spec.unwrap().node_name);
        check("string", node.map(|name| name.unwrap_or_default().into()));
        let label = format!("  labels:\n    a:\n     {scalar}\nspec:\n  containers: []\n");
        let label = pod(&label).map(|pod| pod.metadata.labels.unwrap()["a"].clone());
        check("label", label.map(Value::from));
        if row.get("quantityDiffers").is_none() {
            check("milliCpu", milli_cpu(scalar).map(Value::from));
        }
        check("intOrString", port(scalar).map(Value::from));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn keys_are_texts_as_kubectl_makes_them() {
    let text = "yes: 1\n1: 2\n1.5: 3\n0x10: 4\n1e3: 5\n'on': 6\n";
    let value = documents(text).unwrap().remove(0).value;
    let expected = serde_json::json!({"true": 1, "1": 2, "1.5": 3, "16": 4, "1000": 5, "on": 6});
    assert_eq!(value, expected);
    for text in ["null: 1", "? {a: 1}\n: 2", "? [a]\n: 2"] {
        let error = documents(text).unwrap_err().to_string();
        assert!(error.contains("a key is empty, a list"), "{text}: {error}");
    }
}
