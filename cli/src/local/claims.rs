//! The ResourceClaims of pods: creates those of templates, as kube-controller-manager does, and
//! allocates those of placed pods, as kube-scheduler does.

use std::{borrow::Cow, collections::HashMap};

use k8s_openapi::{
    api::{
        core::v1::{Pod, PodResourceClaimStatus},
        resource::v1::{ResourceClaim, ResourceClaimTemplate},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use tautline_api::manifest::Item;

use crate::manifests::pod_namespace;

/// Returns the UID of a pod; a pod of manifests gets `namespace/name`.
pub(super) fn uid(pod: &Pod) -> String {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let of_files = || format!("{}/{name}", pod_namespace(pod));
    pod.metadata.uid.clone().unwrap_or_else(of_files)
}

/// Adds the claims of pods that name a template and have no claim yet. A claim whose template is
/// not among the items is not created.
pub(super) fn of_templates(items: &[Item]) -> Cow<'_, [Item]> {
    let templates = items.iter().filter_map(|item| match item {
        Item::ResourceClaimTemplate(template) => {
            Some((namespace_and_name(&template.metadata), &**template))
        }
        _ => None,
    });
    let templates: HashMap<_, _> = templates.collect();
    if templates.is_empty() {
        return Cow::Borrowed(items);
    }
    let (mut all, mut claims) = (items.to_vec(), Vec::new());
    for item in &mut all {
        if let Item::Pod(pod) = item {
            claims.extend(new_claims(pod, &templates));
        }
    }
    all.extend(claims.into_iter().map(|c| Item::ResourceClaim(Box::new(c))));
    Cow::Owned(all)
}

/// Returns the namespace and name of an object.
pub(super) fn namespace_and_name(metadata: &ObjectMeta) -> (String, String) {
    let text = |text: &Option<String>, default: &str| text.as_deref().unwrap_or(default).to_owned();
    let namespace = text(&metadata.namespace, "default");
    (namespace, text(&metadata.name, ""))
}

/// Returns the claims that the pod lacks, and names them in its status.
fn new_claims(
    pod: &mut Pod,
    templates: &HashMap<(String, String), &ResourceClaimTemplate>,
) -> Vec<ResourceClaim> {
    let (namespace, owner) = (pod_namespace(pod).to_owned(), owner(pod));
    let name = pod.metadata.name.clone().unwrap_or_default();
    let mut created = Vec::new();
    let statuses = pod.status.get_or_insert_default();
    let statuses = statuses.resource_claim_statuses.get_or_insert_default();
    let claims = pod.spec.iter().flat_map(|s| &s.resource_claims).flatten();
    for claim in claims {
        let Some(template) = &claim.resource_claim_template_name else {
            continue;
        };
        let template = templates.get(&(namespace.clone(), template.clone()));
        if statuses.iter().any(|status| status.name == claim.name) {
            continue;
        }
        let Some(template) = template else { continue };
        let claim_name = format!("{name}-{}", claim.name);
        statuses.push(PodResourceClaimStatus {
            name: claim.name.clone(),
            resource_claim_name: Some(claim_name.clone()),
        });
        let of_template = template.spec.metadata.clone().unwrap_or_default();
        created.push(ResourceClaim {
            metadata: ObjectMeta {
                namespace: Some(namespace.clone()),
                name: Some(claim_name),
                owner_references: Some(vec![owner.clone()]),
                ..of_template
            },
            spec: template.spec.spec.clone(),
            status: None,
        });
    }
    created
}

fn owner(pod: &Pod) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: uid(pod),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

#[cfg(test)]
mod tests {
    use tautline_api::manifest;

    use super::*;

    const PODS: &str = r#"
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: quarter, namespace: ml}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: ml}
spec:
  containers: []
  resourceClaims: [{name: gpu, resourceClaimTemplateName: quarter}, {name: other, resourceClaimTemplateName: absent}]
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: ml}
spec: {containers: [], resourceClaims: [{name: gpu, resourceClaimTemplateName: quarter}]}
status: {resourceClaimStatuses: [{name: gpu, resourceClaimName: b-gpu-x7k2p}]}
"#;

    #[test]
    fn templates_give_pods_the_claims_that_they_lack() {
        let items = manifest::parse(PODS).unwrap();
        let all = of_templates(&items);
        let claims = all.iter().filter_map(|item| match item {
            Item::ResourceClaim(claim) => Some(claim),
            _ => None,
        });
        let claims: Vec<_> = claims.collect();
        assert_eq!(claims.len(), 1, "{claims:?}");
        assert_eq!(
            namespace_and_name(&claims[0].metadata),
            ("ml".into(), "a-gpu".into())
        );
        let owners = claims[0].metadata.owner_references.as_ref().unwrap();
        assert_eq!(owners[0].uid, "ml/a");
        let Item::Pod(pod) = &all[1] else {
            panic!("{all:?}")
        };
        let statuses = pod
            .status
            .as_ref()
            .unwrap()
            .resource_claim_statuses
            .as_ref();
        let names: Vec<_> = statuses
            .unwrap()
            .iter()
            .map(|s| s.resource_claim_name.clone())
            .collect();
        assert_eq!(names, [Some("a-gpu".to_owned())]);
    }

    #[test]
    fn items_without_templates_stay_as_they_are() {
        let items = manifest::parse(PODS).unwrap();
        assert!(matches!(of_templates(&items[1..]), Cow::Borrowed(_)));
    }
}
