//! The calls of an attempt to a real cluster and to its providers.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, StatefulSet},
        core::v1::{ObjectReference, Pod},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::{OwnerReference, Time},
};
use kube::{
    Api,
    api::{DeleteParams, EvictParams, ListParams, PostParams, Preconditions},
};
use tautline_api::{
    constraint::{ConstraintPolicyOfferStatus, LastEviction},
    convert::{UNDERLAY_ANNOTATION, UNDERLAY_FINALIZER},
};
use tautline_core::{
    Compliance, Snapshot, constraints,
    model::{self, Offer, Service, key},
    planning::RuleOutcome,
};
use tautline_runtime::{
    api_call::{self, ApiCallError},
    events::{EventNote, reference_to_own, reference_to_pod},
    finalizers,
    lease::Term,
};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    api,
    calls::{AttemptSettings, Calls, Report},
    context::Context,
    evaluate::evaluate,
};
use crate::{
    binding_spec::BindingSpec,
    clock::Now,
    decisions::Decision,
    eviction::{
        EvictAnswer, Group, NodePlan, OwnerRef, Refusal, check_ready, checked_name, controller_of,
        desired_replicas, is_finished,
    },
    mitigation::MitigationRequest,
    question::Question,
    violations::Violation,
    write_error::WriteError,
};

const DEADLINE: Duration = Duration::from_secs(10);
const WARNING_PERIOD: Duration = Duration::from_secs(300);
/// The label that the pods of one ReplicaSet share. A selector with it lists fewer pods.
const REVISION: &str = "pod-template-hash";
const PODS_PER_PAGE: u32 = 50;

#[derive(Clone)]
pub(super) struct ClusterCalls {
    pub context: Arc<Context>,
    pub settings: Arc<AttemptSettings>,
    pub term: Term,
    pub eviction_turn: Arc<Semaphore>,
}

impl ClusterCalls {
    fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.context.client.clone(), namespace)
    }

    /// Returns the number of replicas that a pod's owner wants; `None` if its kind has none known.
    async fn desired(
        &self,
        namespace: &str,
        owner: &OwnerReference,
    ) -> Result<Option<i32>, Refusal> {
        match OwnerRef::new(owner)? {
            OwnerRef::ReplicaSet(name) => {
                let set = within(self.api::<ReplicaSet>(namespace).get(name)).await?;
                let above = controller_of(&set.metadata).filter(|o| o.kind == "Deployment");
                let Some(above) = above else {
                    return Ok(desired_replicas(set.spec.and_then(|s| s.replicas)));
                };
                // During a rollout the ReplicaSet has fewer replicas than the Deployment wants.
                let name = checked_name(above)?;
                let deployment = within(self.api::<Deployment>(namespace).get(name)).await?;
                Ok(desired_replicas(deployment.spec.and_then(|s| s.replicas)))
            }
            OwnerRef::StatefulSet(name) => {
                let set = within(self.api::<StatefulSet>(namespace).get(name)).await?;
                Ok(desired_replicas(set.spec.and_then(|s| s.replicas)))
            }
            OwnerRef::Other => Ok(None),
        }
    }

    /// Lists pods in pages, and keeps only the parts of each pod that decide on evictions. This
    /// bounds the memory, as the authors of pods choose their size.
    async fn pods(
        &self,
        namespace: &str,
        label_selector: Option<String>,
        keep: impl Fn(&Pod) -> bool,
    ) -> Result<Vec<Pod>, Refusal> {
        let pods = self.api::<Pod>(namespace);
        let mut kept = Vec::new();
        let mut params = ListParams {
            label_selector,
            limit: Some(PODS_PER_PAGE),
            ..ListParams::default()
        };
        loop {
            let page = within(pods.list(&params)).await?;
            let items = page.items.into_iter().filter(|pod| keep(pod));
            kept.extend(items.map(without_containers));
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(kept);
            }
        }
    }
}

impl Calls for ClusterCalls {
    fn settings(&self) -> &AttemptSettings {
        &self.settings
    }

    fn now(&self) -> Now {
        Now::read()
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.context.store.snapshot()
    }

    fn leads(&self) -> bool {
        self.term.is_active()
    }

    fn report(&self, violation: &Violation, report: Report) {
        let Report {
            action,
            code,
            warning,
            text,
        } = report;
        match action {
            "Evict" => self.report_wait(violation, code, &text),
            _ => {
                self.context.metrics.mediation(code);
                let decision = Decision::new(violation, action, code, &text);
                self.context.decisions.push(decision);
            }
        }
        let id = format!("{}/{code}", violation.binding.key());
        let period = if warning {
            WARNING_PERIOD
        } else {
            Duration::ZERO
        };
        self.context.events.publish_once(id, period, || {
            Some(EventNote {
                regarding: reference_to_binding(&violation.binding),
                secondary: None,
                warning,
                reason: code.to_owned(),
                action,
                text,
            })
        });
    }

    fn report_wait(&self, violation: &Violation, code: &'static str, text: &str) {
        self.context.metrics.eviction(code);
        let decision = Decision::new(violation, "Evict", code, text);
        self.context.decisions.push(decision);
    }

    fn report_no_underlay(&self, offer: &Offer, violation: &Violation, text: &str) {
        let (context, code) = (&self.context, "NoUnderlay");
        context.metrics.mediation(code);
        let id = format!("{}/{}/{code}", offer.namespace, offer.name);
        context.events.publish_once(id, WARNING_PERIOD, || {
            let decision = Decision::new(violation, "Mediate", code, text);
            context.decisions.push(decision);
            Some(EventNote {
                regarding: reference_to_offer(offer),
                secondary: None,
                warning: true,
                reason: code.to_owned(),
                action: "Mediate",
                text: text.to_owned(),
            })
        });
    }

    fn report_evicted_pods(&self, offer: &Offer, pods: &[&Pod], because: &str, text: String) {
        let reference = |pod: &&Pod| {
            let [name, uid] = [&pod.metadata.name, &pod.metadata.uid].map(Option::as_deref);
            reference_to_pod(
                &offer.namespace,
                name.unwrap_or_default(),
                uid.unwrap_or_default(),
            )
        };
        let publish = |regarding, secondary, text| {
            self.context.events.publish(EventNote {
                regarding,
                secondary,
                warning: false,
                reason: "Evicted".to_owned(),
                action: "Evict",
                text,
            });
        };
        for pod in pods {
            publish(reference(pod), None, because.to_owned());
        }
        publish(reference_to_offer(offer), pods.first().map(reference), text);
    }

    async fn reevaluate(&self, binding: &BindingSpec) -> Compliance {
        let snapshot = self.snapshot();
        let Some(entry) = snapshot.offer(&binding.namespace, &binding.offer) else {
            return Compliance::Pending;
        };
        let question = Question::new(&snapshot, self.context.trusted(), &entry.offer);
        let evaluation = evaluate(self.context.evaluator(), &snapshot, binding, &question).await;
        evaluation.compliance
    }

    async fn offer_status(&self, offer: &Offer) -> Result<ConstraintPolicyOfferStatus, WriteError> {
        api::get_offer_status(self.context.client.clone(), &offer.namespace, &offer.name).await
    }

    async fn note_mitigation(&self, binding: &BindingSpec, at: &Time) -> Result<(), WriteError> {
        api::note_mitigation(self.context.client.clone(), binding, at).await
    }

    async fn mitigate(
        &self,
        underlay: &Service,
        request: &MitigationRequest,
    ) -> Result<String, String> {
        let mitigation = tautline_provider_client::MitigationRequest {
            ids: request.ids.clone(),
            node: request.node.clone(),
            peer_node: request.peer_node.clone(),
            rules: request.rules.clone(),
        };
        let (providers, snapshot) = (&self.context.provider_client, self.snapshot());
        let answer = providers.mitigate(&snapshot, underlay, &mitigation).await;
        answer.map_err(|e| e.to_string())
    }

    async fn hold_allocation(
        &self,
        pod: &model::Pod,
        underlay: &Service,
        id: &str,
    ) -> Result<(), String> {
        let finalizer = format!("{UNDERLAY_FINALIZER}{id}");
        let by = key(&underlay.namespace, &underlay.name);
        let pods = self.api(&pod.namespace);
        let annotation = (UNDERLAY_ANNOTATION, by.as_str());
        let added = finalizers::add(&pods, &pod.name, &pod.uid, &finalizer, annotation).await;
        added.map_err(|e| e.to_string())
    }

    async fn release_allocation(&self, underlay: &Service, id: &str) -> Result<(), String> {
        let (providers, snapshot) = (&self.context.provider_client, self.snapshot());
        let released = providers.release_underlay(&snapshot, underlay, id).await;
        released.map_err(|e| e.to_string())
    }

    async fn get_pod(&self, namespace: &str, name: &str) -> Result<Pod, String> {
        let pods: Api<Pod> = self.api(namespace);
        let pod = api_call::within(DEADLINE, pods.get(name)).await;
        pod.map_err(|e| e.to_string())
    }

    async fn plan(&self, snapshot: &Snapshot, offer: &Offer, pod: &model::Pod) -> NodePlan {
        let providers = &self.context.provider_client;
        let (rules, _) = constraints::offer_rules(snapshot, offer);
        let allocates = rules.iter().any(|rule| {
            let service = providers.provider(snapshot, &rule.name, &offer.namespace);
            service.is_some_and(|service| providers.is_allocator(service))
        });
        let round = providers.plan_on_fitting_nodes(snapshot, pod).await;
        let unanswered = round.rules.iter().find_map(|r| match r.outcome {
            RuleOutcome::Unavailable { code, .. } => {
                let (rule, why) = (&r.rule.name, r.error.as_deref().unwrap_or(code));
                Some(format!("rule {rule} could not be planned: {code}: {why}"))
            }
            RuleOutcome::Costs(_) => None,
        });
        NodePlan {
            allocates,
            unanswered,
            nodes: round.nodes,
            plan: round.plan,
        }
    }

    async fn group_pods(&self, namespace: &str, group: &Group) -> Result<Vec<Pod>, Refusal> {
        let keep = |pod: &Pod| group.has(pod) && !is_finished(pod);
        self.pods(namespace, group.selector(), keep).await
    }

    async fn budgets(&self, namespace: &str) -> Result<Vec<PodDisruptionBudget>, Refusal> {
        let budgets = self.api::<PodDisruptionBudget>(namespace);
        let listed = within(budgets.list(&ListParams::default())).await?;
        Ok(listed.items)
    }

    async fn check_workload(&self, pod: &Pod) -> Result<(), Refusal> {
        let meta = &pod.metadata;
        let Some(owner) = controller_of(meta) else {
            return Ok(());
        };
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let desired = self.desired(namespace, owner).await?;
        let label = meta.labels.as_ref().and_then(|l| l.get(REVISION));
        let selector = label.map(|value| format!("{REVISION}={value}"));
        let keep = |p: &Pod| controller_of(&p.metadata).is_some_and(|o| o.uid == owner.uid);
        let pods = self.pods(namespace, selector, keep).await?;
        check_ready(pod, owner, desired, &pods)
    }

    async fn eviction_turn(&self) -> Option<SemaphorePermit<'_>> {
        self.eviction_turn.acquire().await.ok()
    }

    async fn note_eviction(
        &self,
        offer: &Offer,
        eviction: &LastEviction,
    ) -> Result<(), WriteError> {
        api::note_eviction(self.context.client.clone(), offer, eviction).await
    }

    async fn evict(&self, pod: &Pod, dry_run: bool) -> EvictAnswer {
        let meta = &pod.metadata;
        let [namespace, name] =
            [&meta.namespace, &meta.name].map(|p| p.as_deref().unwrap_or_default());
        let params = EvictParams {
            delete_options: Some(DeleteParams {
                // The precondition protects a replacement of the same name.
                preconditions: Some(Preconditions {
                    uid: meta.uid.clone(),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            }),
            post_options: PostParams {
                dry_run,
                ..PostParams::default()
            },
        };
        let pods: Api<Pod> = self.api(namespace);
        match api_call::within(DEADLINE, pods.evict(name, &params)).await {
            Ok(_) => EvictAnswer::Done,
            Err(ApiCallError::Failed(kube::Error::Api(status))) => {
                let id = format!("pod {namespace}/{name}");
                EvictAnswer::from_status(&id, status.code, &status.message)
            }
            Err(error) => EvictAnswer::Lost(error.to_string()),
        }
    }
}

pub(super) fn reference_to_binding(binding: &BindingSpec) -> ObjectReference {
    let b = binding;
    reference_to_own("ConstraintPolicyBinding", &b.namespace, &b.name, &b.uid)
}

pub(super) fn reference_to_offer(offer: &Offer) -> ObjectReference {
    let o = offer;
    reference_to_own("ConstraintPolicyOffer", &o.namespace, &o.name, &o.uid)
}

fn without_containers(mut pod: Pod) -> Pod {
    pod.metadata.managed_fields = None;
    if let Some(spec) = &mut pod.spec {
        spec.containers.clear();
        spec.init_containers = None;
    }
    pod
}

async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Refusal> {
    let answer = api_call::within(DEADLINE, call).await;
    answer.map_err(|why| {
        let text = format!("whether the workload is up is not known: {why}");
        Refusal::new("Failed", text)
    })
}
