//! The trait for an attempt's calls to the cluster and to providers. Tests implement it without a
//! server.

use std::sync::Arc;

use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::Time,
};
use tautline_api::constraint::{ConstraintPolicyOfferStatus, LastEviction};
use tautline_core::{
    Compliance, Snapshot,
    model::{self, Offer, Service},
    volumes::PodVolumes,
};
use tautline_provider_client::CallError;
use tokio::sync::SemaphorePermit;

use crate::{
    binding_spec::BindingSpec,
    clock::Now,
    config::Config,
    eviction::{EvictAnswer, Group, NodePlan, Refusal},
    mitigation::Mitigation,
    reconciler::WriteError,
    violations::Violation,
};

/// The Kubernetes event about the outcome of a mitigation or an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// There is no event, as the violation waits for something that comes by itself.
    Quiet,
    Normal,
    Warning,
}

pub(super) trait Calls: Send + Sync {
    fn config(&self) -> &Config;
    fn now(&self) -> Now;
    fn snapshot(&self) -> Arc<Snapshot>;
    fn leads(&self) -> bool;

    /// Reports the outcome of an action, `Mediate` or `Evict`, as a decision, in a metric and in an
    /// event.
    fn report(
        &self,
        violation: &Violation,
        action: &'static str,
        code: &'static str,
        level: Level,
        text: String,
    );
    /// Reports once for all bindings of the offer that there is no underlay controller.
    fn report_no_underlay(&self, offer: &Offer, violation: &Violation);
    /// Reports `because` in an event on each pod, and `text` in an event on the offer.
    fn report_evicted_pods(&self, offer: &Offer, pods: &[&Pod], because: &str, text: String);

    /// Evaluates a binding again and returns its compliance; Pending if its offer does not exist.
    async fn reevaluate(&self, binding: &BindingSpec) -> Compliance;
    async fn offer_status(&self, offer: &Offer) -> Result<ConstraintPolicyOfferStatus, WriteError>;

    async fn note_mitigation(&self, binding: &BindingSpec, at: &Time) -> Result<(), WriteError>;
    /// Requests a mitigation. Returns the id of the new allocation, or "" without one.
    async fn mitigate(
        &self,
        underlay: &Service,
        mitigation: &Mitigation,
    ) -> Result<String, CallError>;
    /// Adds the finalizer of an allocation to a pod, so that the allocation is released with the
    /// pod.
    async fn hold_allocation(
        &self,
        pod: &model::Pod,
        underlay: &Service,
        id: &str,
    ) -> Result<(), WriteError>;
    async fn release_allocation(&self, underlay: &Service, id: &str) -> Result<(), CallError>;

    async fn get_pod(&self, namespace: &str, name: &str) -> Result<Pod, Refusal>;
    /// Plans the nodes for a pod with these volumes. `offer` is the violated offer.
    async fn plan(
        &self,
        snapshot: &Snapshot,
        offer: &Offer,
        pod: &model::Pod,
        volumes: PodVolumes,
    ) -> NodePlan;
    /// Lists the pods of a group that have not finished.
    async fn group_pods(&self, namespace: &str, group: &Group) -> Result<Vec<Pod>, Refusal>;
    async fn budgets(&self, namespace: &str) -> Result<Vec<PodDisruptionBudget>, Refusal>;
    /// Refuses unless the pod's workload is ready. This asks the API server, as watches may lag.
    async fn check_workload(&self, pod: &Pod) -> Result<(), Refusal>;
    /// Waits for the permit to evict: there is one eviction at a time in the cluster.
    async fn eviction_turn(&self) -> Option<SemaphorePermit<'_>>;
    async fn note_eviction(&self, offer: &Offer, eviction: &LastEviction)
    -> Result<(), WriteError>;
    async fn evict(&self, pod: &Pod, dry_run: bool) -> EvictAnswer;
}
