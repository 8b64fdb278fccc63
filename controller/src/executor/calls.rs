//! The calls of an attempt to the cluster and to providers; tests answer without a server.

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

/// The outcome of a mitigation or an eviction: an event, a decision and a count.
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
    /// A decision and a count without an event, for what passes by itself.
    fn report_wait(&self, violation: &Violation, code: &'static str, text: &str);
    /// One report for all bindings of the offer.
    fn report_no_underlay(&self, offer: &Offer, violation: &Violation, text: &str);
    /// `because` for each pod, `text` for the offer.
    fn report_evicted_pods(&self, offer: &Offer, pods: &[&Pod], because: &str, text: String);

    /// The compliance of a binding at this moment; Pending without its offer.
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
    /// Returns the id of a new allocation, or "".
    fn mitigate(
        &self,
        underlay: &Service,
        request: &MitigationRequest,
    ) -> impl Future<Output = Result<String, String>> + Send;
    /// Adds the finalizer of an allocation to a pod.
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
    /// `offer`: the violated one.
    fn plan(
        &self,
        snapshot: &Snapshot,
        offer: &Offer,
        pod: &model::Pod,
    ) -> impl Future<Output = NodePlan> + Send;
    /// The pods of a group that have not finished.
    fn group_pods(
        &self,
        namespace: &str,
        group: &Group,
    ) -> impl Future<Output = Result<Vec<Pod>, Refusal>> + Send;
    fn budgets(
        &self,
        namespace: &str,
    ) -> impl Future<Output = Result<Vec<PodDisruptionBudget>, Refusal>> + Send;
    /// Refuses unless the pod's workload is ready, by the API server: a watch may be behind.
    fn check_workload(&self, pod: &Pod) -> impl Future<Output = Result<(), Refusal>> + Send;
    /// The permit for the one eviction at a time in the cluster.
    fn eviction_turn(&self) -> impl Future<Output = Option<SemaphorePermit<'_>>> + Send;
    fn note_eviction(
        &self,
        offer: &Offer,
        eviction: &LastEviction,
    ) -> impl Future<Output = Result<(), WriteError>> + Send;
    fn evict(&self, pod: &Pod, dry_run: bool) -> impl Future<Output = EvictAnswer> + Send;
}
