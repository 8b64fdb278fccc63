#![allow(clippy::unwrap_used)]

use std::{fmt::Write, fs, path::Path};

use serde_json::Value;
use tautline_model_registry::{Kind, defaults, message, review};

fn read(file: &str) -> String {
    let dir = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/registry"
    ));
    fs::read_to_string(dir.join(file)).unwrap()
}

#[test]
fn as_expected() {
    let mut output = String::new();
    for file in ["1-models.yaml", "2-refused.yaml"] {
        let objects: Vec<Value> = serde_saphyr::from_multiple(&read(file)).unwrap();
        for mut object in objects {
            let name = object["kind"].as_str().unwrap().to_owned();
            let kind = Kind::named(&name).unwrap();
            let patch = defaults(kind, &object);
            writeln!(
                output,
                "{name} {}",
                object["metadata"]["name"].as_str().unwrap()
            )
            .unwrap();
            for operation in &patch {
                let [path, value] = ["path", "value"].map(|key| &operation[key]);
                writeln!(output, "  + {}: {value}", path.as_str().unwrap()).unwrap();
            }
            let patch: json_patch::Patch = serde_json::from_value(Value::Array(patch)).unwrap();
            json_patch::patch(&mut object, &patch).unwrap();
            match review(kind, &object, None) {
                Ok(()) => writeln!(output, "accepted\n").unwrap(),
                Err(errors) => writeln!(output, "{}\n", message(&errors)).unwrap(),
            }
        }
    }
    assert_eq!(output, read("expected.txt"));
}
