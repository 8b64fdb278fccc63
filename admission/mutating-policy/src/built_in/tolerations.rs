//! The plugin `DefaultTolerationSeconds`, which limits how long a pod stays on a failed node
//! (plugin/pkg/admission/defaulttolerationseconds).

use serde_json::{Map, Value, json};

use super::{list, push};

const TAINTS: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];
const TOLERATION_SECONDS: i64 = 300;

pub(super) fn admit(spec: &mut Map<String, Value>) {
    let missing = TAINTS.iter().filter(|taint| {
        let is = |value: &Value, text: &str| {
            let value = value.as_str().unwrap_or_default();
            value.is_empty() || value == text
        };
        let mut tolerations = list(spec, "tolerations").iter();
        !tolerations.any(|t| is(&t["key"], taint) && is(&t["effect"], "NoExecute"))
    });
    for taint in missing.collect::<Vec<_>>() {
        let toleration = json!({"key": taint, "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": TOLERATION_SECONDS});
        push(spec, "tolerations", toleration);
    }
}
