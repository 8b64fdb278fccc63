//! The pods of other clusters that offers name, and that manifests do not have.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Pod;
use tautline_api::convert;
use tautline_core::{
    Snapshot,
    constraints::{self, PodIdentity},
    index::Object,
    remote::{RemotePods, RemoteState, Scope},
};

/// Returns the namespaces of other clusters that offers name, as namespaces without pods. The rules
/// of these offers have no answer while the pods are unknown.
pub(super) fn empty_scopes(snapshot: &Snapshot) -> Vec<Object> {
    let scopes = snapshot.offers().flat_map(|entry| {
        let offer = &entry.offer;
        let targets = offer.remote_targets.iter();
        targets.map(move |target| Scope {
            cluster: Arc::clone(&target.cluster),
            namespace: Arc::clone(&offer.namespace),
        })
    });
    let scopes: BTreeSet<Scope> = scopes.collect();
    let empty = scopes.into_iter().map(|scope| {
        Object::RemotePods(RemotePods {
            scope,
            state: RemoteState::Current,
            pods: BTreeMap::new(),
        })
    });
    empty.collect()
}

/// Returns the targets of other clusters whose pods would be peers of the pod.
pub(super) fn peers(pod: &Pod, snapshot: &Snapshot) -> Vec<String> {
    let pod = PodIdentity::from(&convert::pod(pod));
    let offers = constraints::roles(snapshot, &pod).map(|(offer, _)| offer);
    let texts = offers.flat_map(|offer| {
        let targets = offer.remote_targets.iter();
        targets.map(move |target| {
            let (cluster, name) = (&target.cluster, &target.name);
            let offer = format!("{}/{}", offer.namespace, offer.name);
            format!("pods of cluster {cluster} (target {name} of offer {offer})")
        })
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use tautline_api::manifest;
    use tautline_core::trust::TrustedNamespaces;

    use super::super::{LocalScheduler, builtin::FixedCost};
    use super::*;

    const CLUSTER: &str = r#"
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: "32", pods: "110"}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}, status: {allocatable: {cpu: "32", pods: "110"}}}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicy
metadata: {name: near, namespace: shop}
spec: {rules: [{name: rack, limit: "1"}]}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicyOffer
metadata: {name: web, namespace: shop}
spec:
  policies: [near]
  targets:
  - {name: db, kind: Pod, cluster: east, labelSelector: {matchLabels: {app: db}}}
  - {name: web, kind: Pod, labelSelector: {matchLabels: {app: web}}}
  - {name: cache, kind: Pod, cluster: east, labelSelector: {matchLabels: {app: cache}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: shop, labels: {app: web}}, spec: {containers: []}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db-0, namespace: shop, labels: {app: db}}, spec: {containers: []}}
"#;

    #[tokio::test]
    async fn plans_name_pods_of_other_clusters_and_do_without_them() {
        let items = manifest::parse(CLUSTER).unwrap();
        let local = LocalScheduler::start(&items, TrustedNamespaces::default())
            .await
            .unwrap();
        assert_eq!(empty_scopes(&local.store.snapshot()).len(), 1);
        let costs = BTreeMap::from([("n2".to_owned(), FixedCost::Cost(1))]);
        local.set_costs(&BTreeMap::from([("rack".to_owned(), costs)]));
        let [web, db] = local.pending.as_slice() else {
            panic!("{:?}", local.pending);
        };
        let web = local.place(web).await.unwrap();
        // Only n2 has a cost, so the rule counts.
        assert_eq!(web.node.as_deref(), Some("n2"));
        assert_eq!(
            web.not_considered,
            [
                "pods of cluster east (target db of offer shop/web)",
                "pods of cluster east (target cache of offer shop/web)",
            ]
        );
        let db = local.place(db).await.unwrap();
        assert_eq!((db.round.is_none(), db.not_considered), (true, Vec::new()));
        local.stop().await;
    }
}
