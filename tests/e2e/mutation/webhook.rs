//! The same cases as MutationPolicies, for which the API server calls our webhook.

use std::time::Instant;

use super::*;

/// The differences from the API server's own results.
pub async fn replay(
    client: &Client,
    cases: &[Case],
    theirs: &BTreeMap<&String, End>,
) -> Vec<String> {
    // Without a controller manager roles are not aggregated.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "tautline-admission-params"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]});
    objects::apply_one(client, role).await.unwrap();
    let run = cases.iter().filter(|case| theirs.contains_key(&case.name));
    let mut open: Vec<&Case> = run.collect();
    let manifests = open.iter().flat_map(|case| case.manifests(&Group::Ours));
    for manifest in manifests.chain(canary(&Group::Ours)) {
        objects::apply_one(client, manifest).await.unwrap();
    }
    canary_sings(client, Some("sings")).await;

    // Parameters arrive later.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (mut differ, mut wrong) = (Vec::new(), Vec::new());
        for case in open {
            let ours = send(client, case, &case.object()).await;
            if let Some(difference) = differs(case, &ours, &theirs[&case.name]) {
                differ.push(case);
                wrong.push(format!("by the webhook: {difference}"));
            }
        }
        if wrong.is_empty() || Instant::now() > deadline {
            return wrong;
        }
        open = differ;
    }
}
