//! Calls to the underlay: a service that changes the infrastructure so that a limit is met.

use std::{sync::Arc, time::Duration};

use tautline_core::{
    Snapshot,
    model::{Rule, Service},
    providers,
};
use tautline_proto::underlay::{
    AllocateRequest, AllocateResponse, DiscoverRequest, DiscoverResponse, MitigateRequest,
    MitigateResponse, NodeRef, Offer, PolicyRule, ReleaseRequest,
};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::{CallError, ProviderClient, call::CallOptions, error::status_text};

const DISCOVER: &str = "/underlay.UnderlayController/Discover";
const ALLOCATE: &str = "/underlay.UnderlayController/Allocate";
const RELEASE: &str = "/underlay.UnderlayController/Release";
const MITIGATE: &str = "/underlay.UnderlayController/Mitigate";

/// The error of a failed Allocate.
#[derive(Debug, thiserror::Error)]
pub enum AllocateError {
    /// The underlay rejected it or was never reached: nothing is allocated.
    #[error("{0}")]
    Refused(CallError),
    /// The underlay gave no answer: the offer may be allocated, and must be released.
    #[error("{0}")]
    Unknown(CallError),
}

/// A request to mitigate a violation between two nodes.
#[derive(Clone, Debug, Default)]
pub struct MitigationRequest {
    /// The ids of the pods' current allocations.
    pub ids: Vec<String>,
    /// The pod's node; may be empty.
    pub node: String,
    /// The peer's node; may be empty.
    pub peer_node: String,
    /// The violated rules.
    pub rules: Vec<Rule>,
}

impl ProviderClient {
    /// The underlay controller for an offer in `namespace`, if there is one.
    pub fn underlay<'a>(
        &self,
        snapshot: &'a Snapshot,
        namespace: &str,
    ) -> Option<&'a Arc<Service>> {
        providers::choose_underlay(snapshot, namespace, &self.config().trusted)
    }

    /// The underlay controller `namespace/name`, if it may serve pods in `pod_namespace`.
    pub fn underlay_named<'a>(
        &self,
        snapshot: &'a Snapshot,
        name: &str,
        pod_namespace: &str,
    ) -> Option<&'a Arc<Service>> {
        let (namespace, name) = name.split_once('/')?;
        let service = snapshot.service(namespace, name)?;
        let counts = providers::is_trusted_for(service, pod_namespace, &self.config().trusted);
        (counts && service.underlay).then_some(service)
    }

    /// Asks for the allocations that would make some of `nodes` comply with `rules`.
    ///
    /// # Errors
    /// The underlay gave no answer.
    pub async fn discover_underlay(
        &self,
        snapshot: &Snapshot,
        underlay: &Service,
        rules: &[Rule],
        peer_nodes: Vec<String>,
        nodes: Vec<String>,
    ) -> Result<Vec<Offer>, CallError> {
        let request = DiscoverRequest {
            rules: rules.iter().map(rule).collect(),
            peer_nodes,
            eligible_nodes: nodes,
        };
        self.check_budget(underlay)?;
        let deadline = self.longest_call(underlay, self.config().underlay_deadline);
        let options = CallOptions {
            probe: true,
            ..call_options(DISCOVER, deadline)
        };
        let begun = Instant::now();
        let answer = self.call::<DiscoverResponse>(options, snapshot, underlay, &request);
        let answer = answer.await;
        self.charge_calls(&underlay.namespace, begun.elapsed());
        let offers = answer.map(|answer| answer.offers);
        offers.map_err(|failure| self.hide_details(underlay, failure.error))
    }

    /// Allocates an offer; idempotent.
    ///
    /// # Errors
    /// The error, and whether the offer may be allocated nevertheless.
    pub async fn allocate_underlay(
        &self,
        snapshot: &Snapshot,
        underlay: &Service,
        id: &str,
    ) -> Result<(), AllocateError> {
        let mut deadline = self.config().underlay_deadline;
        if !self.trusts(underlay) {
            // An untrusted underlay delays the binds of other pods.
            deadline = deadline.min(self.config().deadline);
        }
        let options = call_options(ALLOCATE, deadline);
        let request = AllocateRequest { id: id.to_owned() };
        let answer = self.call::<AllocateResponse>(options, snapshot, underlay, &request);
        let Err(failure) = answer.await else {
            return Ok(());
        };
        let refusal = failure.status.as_ref().filter(|status| is_refusal(status));
        let refused = refusal.map(|status| CallError::Failed(status_text(status)));
        Err(match (failure.attempts, refused) {
            (0, _) => AllocateError::Refused(failure.error),
            (1, Some(error)) => AllocateError::Refused(error),
            // If the connection of the first attempt broke, its result is unknown.
            (_, refused) => AllocateError::Unknown(refused.unwrap_or(failure.error)),
        })
    }

    /// Releases an allocation. An unknown id counts as released.
    ///
    /// # Errors
    /// The underlay gave no answer; retry.
    pub async fn release_underlay(
        &self,
        snapshot: &Snapshot,
        underlay: &Service,
        id: &str,
    ) -> Result<(), CallError> {
        let options = call_options(RELEASE, self.config().underlay_deadline);
        let request = ReleaseRequest { id: id.to_owned() };
        let is_unknown = |status: &Status| status.code() == Code::NotFound;
        match self.call(options, snapshot, underlay, &request).await {
            Err(failure) if failure.status.as_ref().is_some_and(is_unknown) => Ok(()),
            released => released.map_err(CallError::from),
        }
    }

    /// Asks for the mitigation of a violation; returns the new allocation's id, or an empty text.
    ///
    /// # Errors
    /// The underlay rejected the request or gave no answer. The call is never retried
    /// automatically.
    pub async fn mitigate(
        &self,
        snapshot: &Snapshot,
        underlay: &Service,
        what: &MitigationRequest,
    ) -> Result<String, CallError> {
        let node = |name: &str| {
            (!name.is_empty()).then(|| NodeRef {
                cluster: String::new(),
                name: name.to_owned(),
            })
        };
        let request = MitigateRequest {
            id: what.ids.clone(),
            src: node(&what.node),
            peer: node(&what.peer_node),
            rules: what.rules.iter().map(rule).collect(),
        };
        let options = CallOptions {
            retry: false,
            ..call_options(MITIGATE, self.config().underlay_deadline)
        };
        let answer: MitigateResponse = self.call(options, snapshot, underlay, &request).await?;
        Ok(answer.id)
    }
}

/// The options of calls that must not be repeated as probes.
fn call_options(rpc: &'static str, deadline: Duration) -> CallOptions {
    CallOptions {
        port: providers::UNDERLAY_PORT,
        probe: false,
        ..CallOptions::new(rpc, deadline)
    }
}

fn is_refusal(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::Unimplemented
    )
}

fn rule(rule: &Rule) -> PolicyRule {
    PolicyRule {
        name: rule.name.to_string(),
        request: rule.request.clone(),
        limit: rule.limit.clone(),
    }
}
