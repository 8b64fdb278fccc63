//! All pods, and this binary, are of one version.

use std::collections::BTreeMap;

use super::or_ok;
use crate::doctor::{
    cluster::State,
    finding::{Finding, counted},
};

pub(super) fn check(state: &State<'_>) -> Vec<Finding> {
    let Some(pods) = &state.cluster.pods else {
        return Vec::new();
    };
    // By version, the workloads and the number of pods.
    let mut versions = BTreeMap::<&str, (Vec<&str>, usize)>::new();
    for workload in &state.workloads {
        for pod in workload.pods(pods) {
            let containers = pod.spec.iter().flat_map(|s| &s.containers);
            let mut same = containers.filter(|c| c.name == workload.container.name);
            if let Some(tag) = same.next().and_then(|c| tag(c.image.as_deref()?)) {
                let (workloads, count) = versions.entry(tag).or_default();
                *count += 1;
                if !workloads.contains(&workload.name) {
                    workloads.push(workload.name);
                }
            }
        }
    }
    let own = state.cluster.version.as_str();
    let listed: Vec<String> = versions
        .iter()
        .map(|(v, (names, n))| format!("{v} ({}: {})", counted(*n, "pod"), names.join(", ")))
        .collect();
    let object = format!("images, namespace {}", state.cluster.namespace);
    let mut findings = Vec::new();
    if versions.len() > 1 {
        let text = format!("differ: {}", listed.join("; "));
        let fix = format!(
            "wait for the rollout, or set one image (images of deploy/base/kustomization.yaml; \
             image of the chart) and apply it: {}",
            state.reapply()
        );
        findings.push(Finding::warning("VersionsDiffer", &object, text, fix));
    } else if let Some(version) = versions.keys().next().filter(|v| **v != own) {
        let text = format!("are of {version}, this tautline is of {own}");
        let fix = format!("use tautline {version}, or update the installation to {own}");
        findings.push(Finding::warning("VersionsDiffer", &object, text, fix));
    }
    let text = match versions.keys().next() {
        Some(version) => format!("all of {version}, as this tautline"),
        None => "have no tag to compare".to_owned(),
    };
    or_ok(findings, Finding::ok("VersionsEqual", object, text))
}

/// The tag of an image without its `v`; `None` for one with a digest only.
pub(crate) fn tag(image: &str) -> Option<&str> {
    let name = image.split('@').next().unwrap_or(image);
    let last = name.rsplit('/').next().unwrap_or(name);
    let (_, tag) = last.split_once(':')?;
    Some(
        tag.strip_prefix('v')
            .filter(|t| t.starts_with(|c: char| c.is_ascii_digit()))
            .unwrap_or(tag),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_images() {
        for (image, expected) in [
            ("tautline", None),
            ("tautline:0.1.0", Some("0.1.0")),
            ("host:5000/team/tautline", None),
            ("host:5000/team/tautline:v0.2.0@sha256:00", Some("0.2.0")),
            ("tautline@sha256:00", None),
            ("tautline:vision", Some("vision")),
        ] {
            assert_eq!(tag(image), expected, "{image}");
        }
    }
}
