use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

/// The resource claims that a pod names or that were created for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodClaims {
    /// The names of claims in the pod's spec and status, all in the pod's namespace.
    pub names: Vec<String>,
    /// The number of claims in the pod's spec that were not created from their template yet.
    pub to_come: usize,
}

/// Returns the claims of a pod, bound or not. Claims from templates and for extended resources have
/// generated names, which the pod's status records.
pub fn pod_claims(pod: &Pod) -> PodClaims {
    let status = pod.status.as_ref();
    let made: BTreeMap<&str, Option<&String>> = status
        .and_then(|s| s.resource_claim_statuses.as_ref())
        .into_iter()
        .flatten()
        .map(|s| (s.name.as_str(), s.resource_claim_name.as_ref()))
        .collect();
    let mut out = PodClaims::default();
    let spec = pod.spec.as_ref();
    let of_spec = spec.and_then(|s| s.resource_claims.as_ref());
    for claim in of_spec.into_iter().flatten() {
        let found = made.get(claim.name.as_str());
        match (&claim.resource_claim_name, found) {
            (Some(name), _) => out.names.push(name.clone()),
            (None, Some(Some(name))) => out.names.push((*name).clone()),
            // The controller found that no claim is needed here.
            (None, Some(None)) => {}
            (None, None) => out.to_come += 1,
        }
    }
    let extended = status.and_then(|s| s.extended_resource_claim_status.as_ref());
    out.names
        .extend(extended.map(|s| s.resource_claim_name.clone()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_claims_come_from_spec_and_status() {
        let pod: Pod = serde_json::from_value(
            serde_json::json!({"metadata": {}, "spec": {"containers": [], "resourceClaims": [
                {"name": "a", "resourceClaimName": "shared"},
                {"name": "b", "resourceClaimTemplateName": "t"},
                {"name": "c", "resourceClaimTemplateName": "t"},
                {"name": "d", "resourceClaimTemplateName": "t"}]},
            "status": {
                "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x"}, {"name": "d"}],
                "extendedResourceClaimStatus": {"resourceClaimName": "p-extended", "requestMappings": []}}}),
        )
        .unwrap();
        let got = pod_claims(&pod);
        assert_eq!(got.names, ["shared", "p-b-x", "p-extended"]);
        assert_eq!(got.to_come, 1);
        assert_eq!(pod_claims(&Pod::default()), PodClaims::default());
    }
}
