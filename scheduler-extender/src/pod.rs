//! The posted pod: its head for every pod, the rest for those that are governed.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::value::RawValue;
use tautline_api::convert;
use tautline_core::{constraints::PodIdentity, nodes::NodeSet, quantity};
use tautline_provider_client::PlanningQuestion;

use crate::wire::WireError;

/// A pod of Kubernetes' own largest size has fewer JSON values. One of a few bytes may take
/// kilobytes once it is read: `{}` among the volumes.
const MOST_VALUES: usize = 100_000;
/// Smaller pods are not worth the look.
const SMALL_BYTES: usize = 64 << 10;

fn check_size(what: &'static str, pod: &str) -> Result<(), WireError> {
    if pod.len() <= SMALL_BYTES {
        return Ok(());
    }
    let count = pod.bytes().filter(|b| matches!(b, b',' | b'{')).count();
    if count > MOST_VALUES {
        let most = MOST_VALUES;
        return Err(WireError::PodTooLarge { what, count, most });
    }
    Ok(())
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    uid: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    labels: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

/// What makes offers govern a pod, without reading its spec.
pub(crate) fn subject(what: &'static str, pod: &RawValue) -> Result<PodIdentity, WireError> {
    check_size(what, pod.get())?;
    let head: Head<'_> =
        serde_json::from_str(pod.get()).map_err(|error| WireError::Json { what, error })?;
    let m = head.metadata;
    let text = |t: Option<Cow<'_, str>>| t.map(Cow::into_owned).unwrap_or_default();
    Ok(PodIdentity {
        name: text(m.name),
        namespace: m
            .namespace
            .map_or_else(|| "default".to_owned(), Cow::into_owned),
        uid: text(m.uid),
        labels: m.labels.into_iter().flatten().collect(),
    })
}

/// All that providers are told of a governed pod.
pub(crate) fn question(
    what: &'static str,
    pod: &RawValue,
    subject: PodIdentity,
    nodes: NodeSet,
) -> Result<PlanningQuestion, WireError> {
    let pod: Pod =
        serde_json::from_str(pod.get()).map_err(|error| WireError::Json { what, error })?;
    Ok(question_of(&pod, subject, nodes))
}

/// The same for a pod that is read already.
pub(crate) fn question_of(pod: &Pod, subject: PodIdentity, nodes: NodeSet) -> PlanningQuestion {
    let requests = pod.spec.as_ref().map(convert::requests).unwrap_or_default();
    let annotations = convert::told_annotations(pod.metadata.annotations.as_ref());
    PlanningQuestion {
        subject,
        annotations: annotations.map(|(k, v)| (k.clone(), v.clone())).collect(),
        requests: requests
            .iter()
            .map(|(name, milli)| (name.to_owned(), quantity::format_milli(milli)))
            .collect(),
        resource_claims: convert::pod_claims(pod).names,
        nodes: Arc::new(nodes),
        scheduler_waits: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_of_very_many_values_is_not_read() {
        let pod = |volumes: usize| {
            let volumes = vec!["{}"; volumes].join(",");
            let text = format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"volumes":[{volumes}]}}}}"#);
            RawValue::from_string(text).unwrap()
        };
        assert_eq!(subject("Args", &pod(40_000)).unwrap().name, "p");
        let error = subject("Args", &pod(60_000)).unwrap_err().to_string();
        assert!(error.contains("JSON values"), "{error}");
    }
}
