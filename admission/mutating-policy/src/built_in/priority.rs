//! The plugin `Priority`, which sets a pod's priority by its class (plugin/pkg/admission/priority).

use serde_json::{Map, Value, json};

use super::text;
use crate::cluster::Refusal;
use crate::objects::Objects;

const API_VERSION: &str = "scheduling.k8s.io/v1";
const KIND: &str = "PriorityClass";
/// The priority classes that every cluster has, with their values.
const SYSTEM: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];
const PREEMPT: &str = "PreemptLowerPriority";

pub(super) fn admit(
    spec: &mut Map<String, Value>,
    given: &Objects,
    notes: &mut Vec<String>,
) -> Result<(), Refusal> {
    let name = text(spec, "priorityClassName").to_owned();
    let class = match name.as_str() {
        "" => Some(default_class(given)),
        name => given.object(API_VERSION, KIND, None, name).or_else(|| {
            let (name, value) = SYSTEM.iter().find(|(system, _)| *system == name)?;
            Some(json!({"metadata": {"name": name}, "value": value}))
        }),
    };
    let Some(class) = class else {
        notes.push(format!(
            "PriorityClass {name} is not given, so the pod has no priority here; \
             name its file by -f"
        ));
        return Ok(());
    };
    if let Some(name) = class["metadata"]["name"].as_str() {
        spec.insert("priorityClassName".to_owned(), name.into());
    }
    let value = class["value"].as_i64().unwrap_or_default();
    if let Some(own) = spec.get("priority").and_then(Value::as_i64)
        && own != value
    {
        return Err(Refusal(format!(
            "the integer value of priority ({own}) must not be provided in pod spec; priority \
             admission controller computed {value} from the given PriorityClass name"
        )));
    }
    spec.insert("priority".to_owned(), value.into());
    let policy = class["preemptionPolicy"].as_str().unwrap_or(PREEMPT);
    let own = text(spec, "preemptionPolicy");
    if !own.is_empty() && own != policy {
        return Err(Refusal(format!(
            "the string value of PreemptionPolicy ({own}) must not be provided in pod spec; \
             priority admission controller computed {policy} from the given PriorityClass name"
        )));
    }
    spec.insert("preemptionPolicy".to_owned(), policy.into());
    Ok(())
}

/// Returns the class of pods that do not name one: the default class with the lowest value, or a
/// class with value 0 if there is no default.
fn default_class(given: &Objects) -> Value {
    let classes = given.of_kind(API_VERSION, KIND);
    let default = classes.filter(|class| class["globalDefault"] == true);
    let lowest = default.min_by_key(|class| class["value"].as_i64());
    lowest.map_or_else(|| json!({"value": 0}), |class| (**class).clone())
}

/// Keeps the priority of a pod that is updated.
pub(super) fn keep(spec: &mut Map<String, Value>, old: &Value) {
    for field in ["priority", "preemptionPolicy"] {
        if let (None, Some(old)) = (spec.get(field), old.get(field)) {
            spec.insert(field.to_owned(), old.clone());
        }
    }
}
