//! Reserves the parts of cards that a Binding gives a pod, as the extender does with `--bind`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use tautline_core::{
    constraints,
    model::{ContainerRequests, Pod},
    nodes::NodeSet,
    providers::choose_provider,
};
use tautline_provider_client::{PlanningQuestion, texts};
use tautline_sdk::{Allocator, Container, Reference, ReservationRequest, Rule, Workload};

use super::LocalScheduler;

impl LocalScheduler {
    /// Returns the annotations that the built-in provider of GPUs writes on a pod. No reservation
    /// is held, since the caller binds the pod before it plans another.
    pub(super) async fn reserve(&self, pod: &Pod, node: &str) -> Result<BTreeMap<String, String>> {
        let snapshot = self.store.snapshot();
        let question = PlanningQuestion::for_pod(pod, NodeSet::default());
        let subject = &question.subject;
        let mut annotations = BTreeMap::new();
        for of_offer in constraints::pod_constraints(&snapshot, subject) {
            let namespace = &of_offer.offer.namespace;
            for rule in &of_offer.rules {
                let service = choose_provider(&snapshot, &rule.name, namespace, &self.trusted);
                if !service.is_some_and(|s| self.builtins.is_gpu_slice(s)) {
                    continue;
                }
                let request = ReservationRequest {
                    workload: Reference::pod(&subject.namespace, &subject.name),
                    uid: subject.uid.clone(),
                    node: node.to_owned(),
                    rule: Rule {
                        name: rule.name.to_string(),
                        request: rule.request.to_string(),
                        limit: rule.limit.to_string(),
                    },
                    details: Some(workload(&question)),
                    ..ReservationRequest::default()
                };
                let attempt = self.builtins.gpu_provider.reserve(request).await;
                let reserved = attempt.with_context(|| {
                    let (namespace, name) = (&subject.namespace, &subject.name);
                    format!("pod {namespace}/{name} cannot be bound to node {node}")
                })?;
                annotations.extend(reserved.annotations);
            }
        }
        self.allocate_claims(pod, node);
        Ok(annotations)
    }

    /// Allocates devices for the claims and extended resources of a pod that has none yet.
    pub(super) fn allocate_claims(&self, pod: &Pod, node: &str) {
        let question = PlanningQuestion::for_pod(pod, NodeSet::default());
        let reference = Reference::pod(&pod.namespace, &pod.name);
        let workload = workload(&question);
        let gpu = &self.builtins.gpu_provider;
        gpu.allocate_claims(&reference, &workload, node);
    }
}

fn workload(question: &PlanningQuestion) -> Workload {
    let labels = question.subject.labels.iter();
    Workload {
        uid: question.subject.uid.clone(),
        labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        annotations: question.annotations.clone(),
        requests: question.requests.clone(),
        resource_claims: question.resource_claims.clone(),
        containers: question.containers.iter().map(container).collect(),
    }
}

fn container(of: &ContainerRequests) -> Container {
    Container {
        kind: of.kind,
        requests: texts(&of.requests),
    }
}

#[cfg(test)]
mod tests {
    use tautline_api::manifest;
    use tautline_core::trust::TrustedNamespaces;

    use super::*;

    const CLUSTER: &str = r#"
{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB}, annotations: {tautline.io/gpu-cards: "1"}}, status: {allocatable: {cpu: "32", pods: "110"}}}
---
{apiVersion: v1, kind: Service, metadata: {name: gpu-slice, namespace: vision, labels: {constraint.ciena.com/constraint-gpu-slice: enabled}}, spec: {}}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicy
metadata: {name: most, namespace: vision}
spec: {rules: [{name: gpu-slice, request: 600m}]}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicyOffer
metadata: {name: web, namespace: vision}
spec: {targets: [{kind: Pod, labelSelector: {matchLabels: {app: web}}}], policies: [most]}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: vision, labels: {app: web}}, spec: {containers: []}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: vision, labels: {app: web}}, spec: {containers: []}}
"#;

    /// A driver's device, and two pods that request it by an extended resource.
    const DEVICES: &str = r#"
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: "32", pods: "110"}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}, status: {allocatable: {cpu: "32", pods: "110"}}}
---
{apiVersion: v1, kind: Service, metadata: {name: gpu-slice, namespace: vision, labels: {constraint.ciena.com/constraint-gpu-slice: enabled}}, spec: {}}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicy
metadata: {name: own, namespace: vision}
spec: {rules: [{name: gpu-slice, request: "true"}]}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicyOffer
metadata: {name: web, namespace: vision}
spec: {targets: [{kind: Pod, labelSelector: {matchLabels: {app: web}}}], policies: [own]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {extendedResourceName: nvidia.com/gpu, selectors: [{cel: {expression: device.driver == "gpu.example.com"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1-gpu}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
---
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: vision, labels: {app: web}}, spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: "1"}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: vision, labels: {app: web}}, spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: "1"}}}]}}
"#;

    async fn placed(cluster: &str) -> (LocalScheduler, Vec<Option<String>>) {
        let items = manifest::parse(cluster).unwrap();
        let trusted = TrustedNamespaces::default();
        let local = LocalScheduler::start(&items, trusted).await.unwrap();
        let mut nodes = Vec::new();
        for pod in local.pending.clone() {
            nodes.push(local.place(&pod).await.unwrap().node);
        }
        (local, nodes)
    }

    #[tokio::test]
    async fn placed_pods_hold_devices_that_a_class_serves() {
        let (local, nodes) = placed(DEVICES).await;
        assert_eq!(nodes, [Some("n1".to_owned()), None]);
        local.stop().await;
    }

    #[tokio::test]
    async fn placed_pods_hold_their_parts_of_cards() {
        let (local, nodes) = placed(CLUSTER).await;
        assert_eq!(nodes, [Some("n1".to_owned()), None]);
        let snapshot = local.store.snapshot();
        let placed = snapshot.pod("vision", "web-0").unwrap();
        assert_eq!(placed.node.as_deref(), Some("n1"));
        local.stop().await;
    }
}
