//! The trait for an attempt's calls to the cluster and to providers. Tests implement it without a
//! server.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::Time,
};
use tautline_api::constraint::{ConstraintPolicyOfferStatus, LastEviction};
use tautline_core::{
    Compliance, Snapshot, TrustedNamespaces,
    model::{self, Offer, Service},
};
use tokio::sync::SemaphorePermit;

use crate::{
    binding_spec::BindingSpec,
    clock::Now,
    config::AnnotationMatch,
    eviction::{EvictAnswer, Group, NodePlan, Refusal},
    mitigation::MitigationRequest,
    violations::Violation,
    write_error::WriteError,
};

#[derive(Clone, Debug)]
pub(super) struct AttemptSettings {
    pub dry_run: bool,
    pub eviction_cool_down: Duration,
    pub protecting_annotations: Vec<AnnotationMatch>,
    pub exempt_namespaces: BTreeSet<String>,
    pub trusted: TrustedNamespaces,
}

/// The outcome of a mitigation or an eviction, for an event, a decision and a metric.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Report {
    /// `Mediate` or `Evict`.
    pub action: &'static str,
    pub code: &'static str,
    pub warning: bool,
    pub text: String,
}

pub(super) trait Calls: Send + Sync {
    fn settings(&self) -> &AttemptSettings;
    fn now(&self) -> Now;
    fn snapshot(&self) -> Arc<Snapshot>;
    fn leads(&self) -> bool;

    fn report(&self, violation: &Violation, report: Report);
    /// Reports a wait that ends by itself: as a decision and in a metric, without an event.
    fn report_wait(&self, violation: &Violation, code: &'static str, text: &str);
    /// Reports once for all bindings of the offer that there is no underlay controller.
    fn report_no_underlay(&self, offer: &Offer, violation: &Violation, text: &str);
    /// Reports `because` in an event on each pod, and `text` in an event on the offer.
    fn report_evicted_pods(&self, offer: &Offer, pods: &[&Pod], because: &str, text: String);

    /// Evaluates a binding again and returns its compliance; Pending if its offer does not exist.
    fn reevaluate(&self, binding: &BindingSpec) -> impl Future<Output = Compliance> + Send;
    fn offer_status(
        &self,
        offer: &Offer,
    ) -> impl Future<Output = Result<ConstraintPolicyOfferStatus, WriteError>> + Send;

    fn note_mitigation(
        &self,
        binding: &BindingSpec,
        at: &Time,
    ) -> impl Future<Output = Result<(), WriteError>> + Send;
    /// Requests a mitigation. Returns the id of the new allocation, or "" without one.
    fn mitigate(
        &self,
        underlay: &Service,
        request: &MitigationRequest,
    ) -> impl Future<Output = Result<String, String>> + Send;
    /// Adds the finalizer of an allocation to a pod, so that the allocation is released with the
    /// pod.
    fn hold_allocation(
        &self,
        pod: &model::Pod,
        underlay: &Service,
        id: &str,
    ) -> impl Future<Output = Result<(), String>> + Send;
    fn release_allocation(
        &self,
        underlay: &Service,
        id: &str,
    ) -> impl Future<Output = Result<(), String>> + Send;

    fn get_pod(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Pod, String>> + Send;
    /// Plans the nodes for a pod. `offer` is the violated offer.
    fn plan(
        &self,
        snapshot: &Snapshot,
        offer: &Offer,
        pod: &model::Pod,
    ) -> impl Future<Output = NodePlan> + Send;
    /// Lists the pods of a group that have not finished.
    fn group_pods(
        &self,
        namespace: &str,
        group: &Group,
    ) -> impl Future<Output = Result<Vec<Pod>, Refusal>> + Send;
    fn budgets(
        &self,
        namespace: &str,
    ) -> impl Future<Output = Result<Vec<PodDisruptionBudget>, Refusal>> + Send;
    /// Refuses unless the pod's workload is ready. This asks the API server, as watches may lag.
    fn check_workload(&self, pod: &Pod) -> impl Future<Output = Result<(), Refusal>> + Send;
    /// Waits for the permit to evict: there is one eviction at a time in the cluster.
    fn eviction_turn(&self) -> impl Future<Output = Option<SemaphorePermit<'_>>> + Send;
    fn note_eviction(
        &self,
        offer: &Offer,
        eviction: &LastEviction,
    ) -> impl Future<Output = Result<(), WriteError>> + Send;
    fn evict(&self, pod: &Pod, dry_run: bool) -> impl Future<Output = EvictAnswer> + Send;
}
