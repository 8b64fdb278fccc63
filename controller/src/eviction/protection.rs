//! Protects pods from eviction: by annotations of their owners or of the administrators, and
//! because of local storage that they would lose.

use k8s_openapi::api::core::v1::{Pod, Volume};
use tautline_core::{compliance_state::UnixTime, duration};

use super::Refusal;
use crate::{binding_status::from_api_time, config::AnnotationMatch};

/// Karpenter's annotation, with the value "true" or a duration from the start of the pod.
const KARPENTER: &str = "karpenter.sh/do-not-disrupt";
const AUTOSCALER: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
const AUTOSCALER_VOLUMES: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
/// The descheduler's annotation, which protects a pod with any value.
const DESCHEDULER: &str = "descheduler.alpha.kubernetes.io/prefer-no-eviction";

/// Refuses a pod with an annotation that forbids its eviction, or with local storage that it would
/// lose. `further` has the configured annotations that forbid an eviction, too.
pub(crate) fn check_protection(
    pod: &Pod,
    id: &str,
    further: &[AnnotationMatch],
    now: UnixTime,
) -> Result<(), Refusal> {
    if let Some((key, value)) = protecting_annotation(pod, further, now) {
        let text = format!("{id} has the annotation {key}: {value:?}");
        return Err(Refusal::new("Protected", text));
    }
    let local = local_volumes(pod);
    if local.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = local.iter().map(|v| v.name.as_str()).collect();
    let volumes: Vec<String> = local.iter().copied().map(described).collect();
    let text = format!(
        "{id} has local storage, which it would lose: {}; if it need not be kept, annotate the pod \
         {AUTOSCALER_VOLUMES}: {:?}",
        volumes.join(", "),
        names.join(",")
    );
    Err(Refusal::new("LocalStorage", text))
}

fn protecting_annotation<'a>(
    pod: &'a Pod,
    further: &[AnnotationMatch],
    now: UnixTime,
) -> Option<(&'a str, &'a str)> {
    let all = pod.metadata.annotations.iter().flatten();
    let mut all = all.map(|(key, value)| (key.as_str(), value.as_str()));
    all.find(|(key, value)| {
        let is_known = match *key {
            KARPENTER => *value != "false" && !is_over(pod, value, now),
            AUTOSCALER => *value == "false",
            DESCHEDULER => true,
            _ => false,
        };
        is_known || further.iter().any(|f| f.matches(key, value))
    })
}

/// Returns whether the duration `after_start` has passed since the pod's start; false if the text
/// is not a duration or the pod has not started.
fn is_over(pod: &Pod, after_start: &str, now: UnixTime) -> bool {
    let start = pod.status.as_ref().and_then(|s| s.start_time.as_ref());
    match (start, duration::parse(after_start)) {
        (Some(start), Ok(after)) => from_api_time(start) + after <= now,
        _ => false,
    }
}

/// Returns the pod's local volumes that an eviction would lose, by the cluster autoscaler's rules.
fn local_volumes(pod: &Pod) -> Vec<&Volume> {
    let annotations = pod.metadata.annotations.as_ref();
    let annotation = |key: &str| annotations.and_then(|a| a.get(key)).map(String::as_str);
    if annotation(AUTOSCALER) == Some("true") {
        return Vec::new();
    }
    let dispensable = annotation(AUTOSCALER_VOLUMES).unwrap_or_default();
    let is_dispensable = |volume: &Volume| dispensable.split(',').any(|n| n.trim() == volume.name);
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    let local = volumes.filter(|volume| is_local(volume) && !is_dispensable(volume));
    local.collect()
}

fn is_local(volume: &Volume) -> bool {
    let in_memory = |medium: Option<&str>| medium == Some("Memory");
    let empty_dir = volume.empty_dir.as_ref();
    volume.host_path.is_some() || empty_dir.is_some_and(|e| !in_memory(e.medium.as_deref()))
}

fn described(volume: &Volume) -> String {
    match &volume.host_path {
        Some(host) => format!("volume {} (hostPath {})", volume.name, host.path),
        None => format!("volume {} (emptyDir)", volume.name),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: UnixTime = UnixTime::from_secs(100_000);

    fn refusal(annotations: Value, volumes: Value, further: &[AnnotationMatch]) -> String {
        let pod = json!({
            "metadata": {"annotations": annotations},
            "spec": {"containers": [], "volumes": volumes},
            // An hour before now.
            "status": {"startTime": "1970-01-02T02:46:40Z"},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let checked = check_protection(&pod, "pod shop/x", further, NOW);
        checked.err().map_or_else(String::new, |r| r.to_string())
    }

    fn annotated(key: &str, value: &str) -> String {
        refusal(json!({ key: value }), json!([]), &[])
    }

    #[test]
    fn annotations_of_other_tools_protect_a_pod() {
        for (key, value) in [
            ("karpenter.sh/do-not-disrupt", "true"),
            ("karpenter.sh/do-not-disrupt", "90m"),
            // Not understood: the pod stays.
            ("karpenter.sh/do-not-disrupt", "yes"),
            ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
            (
                "descheduler.alpha.kubernetes.io/prefer-no-eviction",
                "false",
            ),
        ] {
            let text = format!("Protected: pod shop/x has the annotation {key}: {value:?}");
            assert_eq!(annotated(key, value), text);
        }
    }

    #[test]
    fn annotations_that_allow_an_eviction_do_not_protect() {
        for (key, value) in [
            ("karpenter.sh/do-not-disrupt", "false"),
            // The pod started an hour ago.
            ("karpenter.sh/do-not-disrupt", "30m"),
            ("cluster-autoscaler.kubernetes.io/safe-to-evict", "true"),
            ("descheduler.alpha.kubernetes.io/evict", "true"),
        ] {
            assert_eq!(annotated(key, value), "", "{key}: {value}");
        }
    }

    #[test]
    fn further_annotations_protect_by_key_or_by_value() {
        let further: Vec<AnnotationMatch> = ["example.com/pinned", "example.com/move=never"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let code = |key: &str, value: &str| refusal(json!({ key: value }), json!([]), &further);
        assert!(code("example.com/pinned", "x").starts_with("Protected: "));
        assert!(code("example.com/move", "never").starts_with("Protected: "));
        assert_eq!(code("example.com/move", "gladly"), "");
    }

    #[test]
    fn local_storage_protects_a_pod() {
        let volumes = json!([
            {"name": "cache", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "data", "hostPath": {"path": "/srv"}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "token", "projected": {}},
        ]);
        assert_eq!(
            refusal(json!({}), volumes.clone(), &[]),
            "LocalStorage: pod shop/x has local storage, which it would lose: volume cache \
             (emptyDir), volume data (hostPath /srv); if it need not be kept, annotate the pod \
             cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes: \"cache,data\""
        );
        let key = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
        assert_eq!(
            refusal(json!({ key: "cache, data" }), volumes.clone(), &[]),
            ""
        );
        let some = refusal(json!({ key: "cache" }), volumes.clone(), &[]);
        assert!(
            some.contains("lose: volume data (hostPath /srv);"),
            "{some}"
        );
        let all = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"});
        assert_eq!(refusal(all, volumes, &[]), "");
    }
}
