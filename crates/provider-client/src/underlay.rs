//! Calls to the underlay: a service that changes the infrastructure so that a limit is met.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use tautline_core::{
    Snapshot,
    model::{Rule, Service},
    providers,
};
use tautline_proto::underlay::{
    AllocateRequest, DiscoverRequest, MitigateRequest, NodeRef, Offer, PolicyRule, ReleaseRequest,
    underlay_controller_client::UnderlayControllerClient,
};
use tokio::time::Instant;
use tonic::{Code, Request, Status};

use crate::{
    CallError, ProviderClient,
    call::{CallOptions, EndpointChoice},
    failure::status_text,
};

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
        let (namespace, begun) = (&underlay.namespace, Instant::now());
        let budgets = self.budgets().filter(|_| !self.trusts(underlay));
        let mut options = CallOptions {
            probe: true,
            ..self.call_options("underlay.UnderlayController/Discover", true)
        };
        if let Some(budgets) = budgets {
            options.deadline = self.deadline_within_budget(budgets, underlay, options.deadline)?;
        }
        let answer = self.call_until(options, snapshot, underlay, move |channel, _| {
            let request = request.clone();
            async move {
                let mut client = UnderlayControllerClient::new(channel);
                Ok(client.discover(request).await?.into_inner())
            }
        });
        let answer = answer.await;
        if let Some(budgets) = budgets {
            budgets.charge(namespace, Instant::now(), begun.elapsed());
        }
        match answer {
            Ok(answer) => Ok(answer.offers),
            Err(error) => Err(self.hide_details(underlay, error)),
        }
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
        let attempts = Arc::new(AtomicU32::new(0));
        let (counted, id) = (Arc::clone(&attempts), id.to_owned());
        let call = move |channel, left| {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut request = Request::new(AllocateRequest { id: id.clone() });
            // So that the underlay stops at the same time.
            request.set_timeout(left);
            async move {
                let mut client = UnderlayControllerClient::new(channel);
                match client.allocate(request).await {
                    Err(status) if is_refusal(&status) => Ok(Err(status)),
                    Err(status) => Err(status),
                    Ok(_) => Ok(Ok(())),
                }
            }
        };
        let mut options = self.call_options("underlay.UnderlayController/Allocate", true);
        if !self.trusts(underlay) {
            // An untrusted underlay delays the binds of other pods.
            options.deadline = options.deadline.min(self.config().deadline);
        }
        let answer = self.call_until(options, snapshot, underlay, call).await;
        match answer {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) => {
                let error = CallError::Failed(status_text(&status));
                // With a broken connection the first attempt's result is unknown.
                if attempts.load(Ordering::Relaxed) > 1 {
                    Err(AllocateError::Unknown(error))
                } else {
                    Err(AllocateError::Refused(error))
                }
            }
            Err(
                error
                @ (CallError::NotReady | CallError::BreakerOpen(_) | CallError::NotAllowed(_)),
            ) => Err(AllocateError::Refused(error)),
            Err(error) => Err(AllocateError::Unknown(error)),
        }
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
        let id = id.to_owned();
        let call = move |channel, _| {
            let request = ReleaseRequest { id: id.clone() };
            async move {
                let mut client = UnderlayControllerClient::new(channel);
                match client.release(request).await {
                    Err(status) if status.code() != Code::NotFound => Err(status),
                    _ => Ok(()),
                }
            }
        };
        let options = self.call_options("underlay.UnderlayController/Release", true);
        self.call_until(options, snapshot, underlay, call).await
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
        let call = move |channel, _| {
            let request = request.clone();
            async move {
                let mut client = UnderlayControllerClient::new(channel);
                Ok::<_, Status>(client.mitigate(request).await?.into_inner().id)
            }
        };
        let options = self.call_options("underlay.UnderlayController/Mitigate", false);
        self.call_until(options, snapshot, underlay, call).await
    }

    fn call_options(&self, rpc: &'static str, again: bool) -> CallOptions {
        CallOptions {
            rpc,
            port: providers::UNDERLAY_PORT,
            deadline: self.config().underlay_deadline,
            retry: again,
            // Allocate and Release must not be repeated as probes.
            probe: false,
            may_be_unavailable: false,
            endpoint: EndpointChoice::RoundRobin,
            until: None,
        }
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
