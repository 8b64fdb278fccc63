//! Creates the ResourceClaims of templates, as kube-controller-manager does.

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

/// The annotation of a claim with the name that the claim has in its pod.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";

/// Adds the claims of pods that name a template and have no claim yet. A claim whose template is
/// not among the items is not created.
pub(crate) fn of_templates(items: &[Item]) -> Cow<'_, [Item]> {
    let templates = items.iter().filter_map(|item| match item {
        Item::ResourceClaimTemplate(template) => {
            Some((namespace_and_name(&template.metadata), &**template))
        }
        _ => None,
    });
    let mut all = Claims {
        templates: templates.collect(),
        existing: HashMap::new(),
        created: Vec::new(),
    };
    if all.templates.is_empty() {
        return Cow::Borrowed(items);
    }
    all.existing.extend(items.iter().filter_map(existing));
    let mut items = items.to_vec();
    for item in &mut items {
        if let Item::Pod(pod) = item {
            all.complete(pod);
        }
    }
    let created = all.created.into_iter();
    items.extend(created.map(|claim| Item::ResourceClaim(Box::new(claim))));
    Cow::Owned(items)
}

/// Returns the namespace and name of an object.
pub(super) fn namespace_and_name(metadata: &ObjectMeta) -> (String, String) {
    let text = |text: &Option<String>, default: &str| text.as_deref().unwrap_or(default).to_owned();
    let namespace = text(&metadata.namespace, "default");
    (namespace, text(&metadata.name, ""))
}

/// Returns the pod's UID, the name in the pod and the own name of a claim that was created from a
/// template.
fn existing(item: &Item) -> Option<((String, String), String)> {
    let Item::ResourceClaim(claim) = item else {
        return None;
    };
    let name = claim.metadata.annotations.as_ref()?.get(POD_CLAIM_NAME)?;
    let mut owners = claim.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true) && owner.kind == "Pod")?;
    let key = (owner.uid.clone(), name.clone());
    Some((key, claim.metadata.name.clone()?))
}

struct Claims<'a> {
    templates: HashMap<(String, String), &'a ResourceClaimTemplate>,
    /// The names of claims by their pod's UID and their name in the pod.
    existing: HashMap<(String, String), String>,
    created: Vec<ResourceClaim>,
}

impl Claims<'_> {
    /// Names the pod's claims in its status, and creates those that it lacks.
    fn complete(&mut self, pod: &mut Pod) {
        let (namespace, owner) = (pod_namespace(pod).to_owned(), owner(pod));
        let statuses = pod.status.get_or_insert_default();
        let statuses = statuses.resource_claim_statuses.get_or_insert_default();
        let claims = pod.spec.iter().flat_map(|s| &s.resource_claims).flatten();
        for claim in claims {
            let Some(template) = &claim.resource_claim_template_name else {
                continue;
            };
            if statuses.iter().any(|status| status.name == claim.name) {
                continue;
            }
            let known = self.existing.get(&(owner.uid.clone(), claim.name.clone()));
            let template = self.templates.get(&(namespace.clone(), template.clone()));
            let name = match (known, template) {
                (Some(known), _) => known.clone(),
                (None, Some(template)) => {
                    // In place of five random characters.
                    let number = self.created.len() + 1;
                    let name = format!("{}-{}-{number:05}", owner.name, claim.name);
                    let of_template = template.spec.metadata.clone().unwrap_or_default();
                    self.created.push(ResourceClaim {
                        metadata: ObjectMeta {
                            namespace: Some(namespace.clone()),
                            name: Some(name.clone()),
                            owner_references: Some(vec![owner.clone()]),
                            ..of_template
                        },
                        spec: template.spec.spec.clone(),
                        status: None,
                    });
                    name
                }
                (None, None) => continue,
            };
            statuses.push(PodResourceClaimStatus {
                name: claim.name.clone(),
                resource_claim_name: Some(name),
            });
        }
    }
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
---
apiVersion: v1
kind: Pod
metadata: {name: c, namespace: ml, uid: u1}
spec: {containers: [], resourceClaims: [{name: gpu, resourceClaimTemplateName: quarter}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: c-gpu-q4f7s
  namespace: ml
  annotations: {resource.kubernetes.io/pod-claim-name: gpu}
  ownerReferences: [{apiVersion: v1, kind: Pod, name: c, uid: u1, controller: true}]
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}
"#;

    #[test]
    fn templates_give_pods_the_claims_that_they_lack() {
        let items = manifest::parse(PODS).unwrap();
        let all = of_templates(&items);
        let claims = all.iter().filter_map(|item| match item {
            Item::ResourceClaim(claim) => Some(claim),
            _ => None,
        });
        let created: Vec<_> = claims.skip(1).collect();
        assert_eq!(created.len(), 1, "{created:?}");
        let name = namespace_and_name(&created[0].metadata);
        assert_eq!(name, ("ml".into(), "a-gpu-00001".into()));
        let owners = created[0].metadata.owner_references.as_ref().unwrap();
        assert_eq!(owners[0].uid, "ml/a");
        let named = all.iter().filter_map(|item| match item {
            Item::Pod(pod) => pod.status.as_ref()?.resource_claim_statuses.clone(),
            _ => None,
        });
        let named: Vec<Option<String>> = named
            .flatten()
            .map(|status| status.resource_claim_name)
            .collect();
        let names = ["a-gpu-00001", "b-gpu-x7k2p", "c-gpu-q4f7s"];
        assert_eq!(named, names.map(|name| Some(name.to_owned())));
    }

    #[test]
    fn items_without_templates_stay_as_they_are() {
        let items = manifest::parse(PODS).unwrap();
        assert!(matches!(of_templates(&items[1..]), Cow::Borrowed(_)));
    }
}
