#![allow(clippy::unwrap_used)]

use std::{fmt::Write, fs, path::Path};

use serde_json::Value;
use tautline_gpu_sharing::{Decision, Names, Policy, decide};

fn read(file: &str) -> String {
    let dir = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/gpu-admission"
    ));
    fs::read_to_string(dir.join(file)).unwrap()
}

#[test]
fn as_expected() {
    let map: Value = serde_saphyr::from_str(&read("1-policy.yaml")).unwrap();
    let policy = Policy::parse(map["data"]["policy.json"].as_str().unwrap()).unwrap();
    assert!(policy.bad_rules().is_empty() && policy.warnings().is_empty());
    let pods: Vec<Value> = serde_saphyr::from_multiple(&read("2-pods.yaml")).unwrap();
    let mut output = String::new();
    for pod in &pods {
        let meta = &pod["metadata"];
        let [namespace, name] = ["namespace", "name"].map(|key| meta[key].as_str().unwrap());
        write!(output, "{namespace}/{name}: ").unwrap();
        match decide(&Names::default(), Some(&policy), namespace, pod) {
            Decision::Unchanged(why) => writeln!(output, "unchanged; {why}").unwrap(),
            Decision::Refuse(message) => writeln!(output, "refused; {message}").unwrap(),
            Decision::Mutate(mutation) => {
                write!(output, "changed; ").unwrap();
                for change in &mutation.changes {
                    let (container, cards) = (&change.container, change.cards);
                    write!(output, "{container} {cards} -> {} shares; ", change.units).unwrap();
                }
                writeln!(output, "{}; {}", mutation.cause, mutation.source).unwrap();
            }
        }
    }
    assert_eq!(output, read("expected.txt"));
}
