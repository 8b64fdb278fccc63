//! The calls of an attempt to a real cluster and to its providers.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, StatefulSet},
        core::v1::Pod,
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::{OwnerReference, Time},
};
use kube::{
    Api,
    api::{DeleteParams, EvictParams, ListParams, PostParams, Preconditions},
};
use serde_json::json;
use tautline_api::{
    constraint::{
        ConstraintPolicyBinding, ConstraintPolicyOffer, ConstraintPolicyOfferStatus, LastEviction,
    },
    convert::{UNDERLAY_ANNOTATION, UNDERLAY_FINALIZER},
};
use tautline_core::{
    Compliance, Snapshot, constraints,
    model::{self, Offer, Service, key},
    planning::RuleOutcome,
    volumes::PodVolumes,
};
use tautline_provider_client::{CallError, PlanningRound};
use tautline_runtime::{
    api_call::{self, ApiCallError},
    events::{EventNote, reference_to_pod},
    finalizers,
    lease::Term,
    pods,
};
use tokio::sync::SemaphorePermit;

use super::{
    Context, DEADLINE, WARNING_PERIOD,
    api::{self, ACTIONS_MANAGER},
    calls::{Calls, Level},
    evaluate::evaluate,
    pod_storage,
};
use crate::{
    binding_spec::{BindingSpec, note, reference_to_offer},
    clock::Now,
    config::Config,
    eviction::{
        EvictAnswer, Group, NodePlan, Refusal, check_ready, checked_name, controller_of,
        is_finished,
    },
    mitigation::Mitigation,
    question::Question,
    reconciler::WriteError,
    violations::Violation,
};

/// The label that the pods of one ReplicaSet share. A selector with it lists fewer pods.
const REVISION: &str = "pod-template-hash";
const PODS_PER_PAGE: u32 = 50;

pub(super) struct ClusterCalls {
    pub context: Arc<Context>,
    pub term: Term,
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
        let replicas = match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("apps/v1", "ReplicaSet") => {
                let name = checked_name(owner)?;
                let set = within(self.api::<ReplicaSet>(namespace).get(name)).await?;
                match controller_of(&set.metadata).filter(|o| o.kind == "Deployment") {
                    None => set.spec.and_then(|s| s.replicas),
                    // During a rollout the ReplicaSet has fewer replicas than the Deployment wants.
                    Some(above) => {
                        let name = checked_name(above)?;
                        let above = within(self.api::<Deployment>(namespace).get(name)).await?;
                        above.spec.and_then(|s| s.replicas)
                    }
                }
            }
            ("apps/v1", "StatefulSet") => {
                let name = checked_name(owner)?;
                let set = within(self.api::<StatefulSet>(namespace).get(name)).await?;
                set.spec.and_then(|s| s.replicas)
            }
            _ => return Ok(None),
        };
        Ok(Some(replicas.unwrap_or(1)))
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
            let page = within(pods::list(&pods, &params)).await?;
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
    fn config(&self) -> &Config {
        &self.context.config
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

    fn report(
        &self,
        violation: &Violation,
        action: &'static str,
        code: &'static str,
        level: Level,
        text: String,
    ) {
        let context = &self.context;
        context.metrics.acted(action, code);
        context.decisions.push(violation, action, code, &text);
        let period = match level {
            Level::Quiet => return,
            Level::Normal => Duration::ZERO,
            Level::Warning => WARNING_PERIOD,
        };
        let binding = &violation.binding;
        let warning = level == Level::Warning;
        let note = note(binding.reference(), warning, code, action, text);
        let id = format!("{}/{code}", binding.key());
        context.events.publish_once(id, period, || Some(note));
    }

    fn report_no_underlay(&self, offer: &Offer, violation: &Violation) {
        let (context, action, code) = (&self.context, "Mediate", "NoUnderlay");
        let text = "no Service of this namespace or a trusted one (--provider-namespaces) is labelled \
                    constraint.ciena.com/underlay-controller, or not the one that holds the pod's \
                    allocations";
        context.metrics.acted(action, code);
        let id = format!("{}/{}/{code}", offer.namespace, offer.name);
        context.events.publish_once(id, WARNING_PERIOD, || {
            context.decisions.push(violation, action, code, text);
            let text = text.to_owned();
            Some(note(reference_to_offer(offer), true, code, action, text))
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
        let events = &self.context.events;
        let note = |regarding, text| note(regarding, false, "Evicted", "Evict", text);
        for pod in pods {
            events.publish(note(reference(pod), because.to_owned()));
        }
        events.publish(EventNote {
            secondary: pods.first().map(reference),
            ..note(reference_to_offer(offer), text)
        });
    }

    async fn reevaluate(&self, binding: &BindingSpec) -> Compliance {
        let snapshot = self.snapshot();
        let Some(entry) = snapshot.offer(&binding.namespace, &binding.offer) else {
            return Compliance::Pending;
        };
        let question = Question::new(&snapshot, self.context.trusted(), &entry.offer);
        let calls = (&self.context.provider_client, &self.context.metrics);
        let evaluation = evaluate(calls, &snapshot, binding, &question).await;
        evaluation.compliance
    }

    async fn offer_status(&self, offer: &Offer) -> Result<ConstraintPolicyOfferStatus, WriteError> {
        let offers: Api<ConstraintPolicyOffer> = self.api(&offer.namespace);
        let offer = api::within(offers.get(&offer.name)).await?;
        Ok(offer.status.unwrap_or_default())
    }

    async fn note_mitigation(&self, binding: &BindingSpec, at: &Time) -> Result<(), WriteError> {
        let bindings: Api<ConstraintPolicyBinding> = self.api(&binding.namespace);
        let status = json!({"lastMitigatedTimestamp": at});
        let (name, uid) = (&binding.name, &binding.uid);
        api::apply(&bindings, name, uid, ACTIONS_MANAGER, status).await
    }

    async fn mitigate(
        &self,
        underlay: &Service,
        mitigation: &Mitigation,
    ) -> Result<String, CallError> {
        let (providers, snapshot) = (&self.context.provider_client, self.snapshot());
        let request = &mitigation.request;
        providers.mitigate(&snapshot, underlay, request).await
    }

    async fn hold_allocation(
        &self,
        pod: &model::Pod,
        underlay: &Service,
        id: &str,
    ) -> Result<(), WriteError> {
        let finalizer = format!("{UNDERLAY_FINALIZER}{id}");
        let by = key(&underlay.namespace, &underlay.name);
        let pods = self.api(&pod.namespace);
        let annotation = (UNDERLAY_ANNOTATION, by.as_str());
        let added = finalizers::add(&pods, &pod.name, &pod.uid, &finalizer, annotation).await;
        added.map_err(|e| WriteError::Refused(e.to_string()))
    }

    async fn release_allocation(&self, underlay: &Service, id: &str) -> Result<(), CallError> {
        let (providers, snapshot) = (&self.context.provider_client, self.snapshot());
        providers.release_underlay(&snapshot, underlay, id).await
    }

    async fn get_pod(&self, namespace: &str, name: &str) -> Result<Pod, Refusal> {
        let pods: Api<Pod> = self.api(namespace);
        let pod = api_call::within(DEADLINE, pods::get(&pods, name)).await;
        pod.map_err(|e| Refusal::new("Failed", format!("pod {namespace}/{name}: {e}")))
    }

    async fn plan(
        &self,
        snapshot: &Snapshot,
        offer: &Offer,
        pod: &model::Pod,
        volumes: PodVolumes,
    ) -> NodePlan {
        let providers = &self.context.provider_client;
        let known;
        let snapshot = if volumes.claims.is_empty() {
            snapshot
        } else {
            match pod_storage::read(&self.context.client, &volumes).await {
                Ok(storage) => known = snapshot.with_volumes(volumes, storage),
                Err(refusal) => {
                    return NodePlan {
                        unplanned: Some(refusal.text),
                        ..NodePlan::default()
                    };
                }
            }
            &known
        };
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
            unplanned: unanswered.or_else(|| unplanned_devices(snapshot, pod, &round)),
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
        self.context.eviction_turn.acquire().await.ok()
    }

    async fn note_eviction(
        &self,
        offer: &Offer,
        eviction: &LastEviction,
    ) -> Result<(), WriteError> {
        let offers: Api<ConstraintPolicyOffer> = self.api(&offer.namespace);
        let (name, uid) = (&offer.name, &offer.uid);
        let status = json!({"lastEviction": eviction});
        api::apply(&offers, name, uid, ACTIONS_MANAGER, status).await
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

fn without_containers(mut pod: Pod) -> Pod {
    pod.metadata.managed_fields = None;
    if let Some(spec) = &mut pod.spec {
        spec.containers.clear();
        spec.init_containers = None;
    }
    pod
}

/// Returns why the plan does not show where the pod would get its devices: only the rule for GPUs
/// counts those of drivers.
fn unplanned_devices(
    snapshot: &Snapshot,
    pod: &model::Pod,
    round: &PlanningRound,
) -> Option<String> {
    if round.rules.iter().any(|r| *r.rule.name == *"gpu-slice") {
        return None;
    }
    let what = match pod.claims().next() {
        Some(claim) => format!("ResourceClaim {claim}"),
        None => {
            let resource = snapshot.requested_of_class(&pod.requests)?;
            format!("{resource} from a DeviceClass")
        }
    };
    Some(format!(
        "no rule gpu-slice governs the pod, so nothing plans its devices: {what}"
    ))
}

async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Refusal> {
    let answer = api_call::within(DEADLINE, call).await;
    answer.map_err(|why| {
        let text = format!("whether the workload is up is not known: {why}");
        Refusal::new("Failed", text)
    })
}
