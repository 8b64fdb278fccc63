//! Reserves at bind, for rules whose providers hand out countable resources.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use prost::Message;
use tautline_core::{
    Snapshot,
    constraints::PodConstraints,
    model::{Rule, Service},
    reference::Reference,
};
use tautline_proto::{MAX_HOLD, allocator as wire, ruleprovider};
use tokio::time::Instant;

use crate::{
    CallError, PlanningQuestion, ProviderClient,
    call::CallOptions,
    costs::{target, wire_containers, wire_rule},
    question::provider_name,
};

/// The time for a Binding in transit before the hold ends.
const BINDING_MARGIN: Duration = Duration::from_secs(1);

const RESERVE: &str = "/tautline.allocator.v1.Allocator/Reserve";
const CONFIRM: &str = "/tautline.allocator.v1.Allocator/Confirm";
const RELEASE: &str = "/tautline.allocator.v1.Allocator/Release";

/// A reservation for a pod at one provider.
#[derive(Clone, Debug)]
pub struct Reservation {
    service: Arc<Service>,
    id: String,
    requested_at: Instant,
    /// Annotations to write on the pod with the Binding.
    pub annotations: BTreeMap<String, String>,
}

impl Reservation {
    /// The time left to write a Binding. It counts from before the call, so it never ends after the
    /// hold.
    pub fn remaining(&self) -> Duration {
        (MAX_HOLD - BINDING_MARGIN).saturating_sub(self.requested_at.elapsed())
    }
}

/// A failed reservation.
#[derive(Debug, thiserror::Error)]
#[error("{provider}: rule {rule:?} cannot be reserved on {node}: {error}")]
pub struct ReserveError {
    provider: Arc<str>,
    rule: Arc<str>,
    node: String,
    error: CallError,
}

impl ProviderClient {
    /// Reserves on `node` every rule of the pod whose provider is an allocator.
    ///
    /// # Errors
    /// The first failure; the reservations made before it are released.
    pub async fn reserve(
        &self,
        snapshot: &Snapshot,
        constraints: &[PodConstraints],
        question: &PlanningQuestion,
        node: &str,
    ) -> Result<Vec<Reservation>, ReserveError> {
        let mut held = Vec::new();
        for constraints in constraints {
            for rule in &constraints.rules {
                let namespace = &constraints.offer.namespace;
                let Some(service) = self.allocator(snapshot, &rule.name, namespace) else {
                    continue;
                };
                let reserved = self.reserve_one(snapshot, service, question, rule, node);
                match reserved.await {
                    Ok(reservation) => held.push(reservation),
                    Err(error) => {
                        self.release(snapshot, &held).await;
                        return Err(ReserveError {
                            provider: provider_name(service),
                            rule: Arc::clone(&rule.name),
                            node: node.to_owned(),
                            error,
                        });
                    }
                }
            }
        }
        Ok(held)
    }

    async fn reserve_one(
        &self,
        snapshot: &Snapshot,
        service: &Arc<Service>,
        question: &PlanningQuestion,
        rule: &Rule,
        node: &str,
    ) -> Result<Reservation, CallError> {
        let subject = &question.subject;
        let request = wire::ReserveRequest {
            workload: Some(target(Reference::pod(&subject.namespace, &subject.name))),
            uid: subject.uid.clone(),
            node: node.to_owned(),
            rule: Some(wire_rule(rule)),
            details: Some(ruleprovider::Workload {
                labels: subject
                    .labels
                    .iter()
                    .map(|(k, v)| (k.into(), v.into()))
                    .collect(),
                annotations: self.shared_annotations(service, question),
                requests: question.requests.clone(),
                resource_claims: question.resource_claims.clone(),
                containers: wire_containers(&question.containers),
                uid: subject.uid.clone(),
            }),
            hold_millis: i64::try_from(MAX_HOLD.as_millis()).unwrap_or(i64::MAX),
        };
        let requested_at = Instant::now();
        let answer: wire::ReserveResponse = self
            .call_allocator(snapshot, service, RESERVE, &request)
            .await?;
        let allowed = &self.config().allocator_annotations;
        let may_write = |key: &String| allowed.iter().any(|a| a.allows(&rule.name, key));
        let refused = answer.annotations.keys().find(|key| !may_write(key));
        let refused = refused.map(|key| {
            CallError::BadAnswer(format!(
                "it wants to write the annotation {key:?}, which --allocator-annotations does \
                 not allow it"
            ))
        });
        let reservation = Reservation {
            service: Arc::clone(service),
            id: answer.id,
            requested_at,
            annotations: answer.annotations,
        };
        match refused {
            None => Ok(reservation),
            Some(error) => {
                self.release(snapshot, &[reservation]).await;
                Err(error)
            }
        }
    }

    /// Confirms the reservations of a bound pod. A provider that is unreachable now rebuilds them
    /// from the pod's annotations.
    pub async fn confirm(&self, snapshot: &Snapshot, held: &[Reservation]) {
        for r in held {
            let request = wire::ConfirmRequest { id: r.id.clone() };
            let confirmed: Result<wire::ConfirmResponse, _> = self
                .call_allocator(snapshot, &r.service, CONFIRM, &request)
                .await;
            if let Err(error) = confirmed {
                tracing::warn!(id = ?r.id, %error, "a reservation could not be confirmed");
            }
        }
    }

    /// Releases reservations. A reservation expires if its provider cannot be reached.
    pub async fn release(&self, snapshot: &Snapshot, held: &[Reservation]) {
        for r in held {
            let request = wire::ReleaseRequest { id: r.id.clone() };
            let released: Result<wire::ReleaseResponse, _> = self
                .call_allocator(snapshot, &r.service, RELEASE, &request)
                .await;
            if let Err(error) = released {
                tracing::warn!(id = ?r.id, %error, "a reservation was not released; it expires");
            }
        }
    }

    async fn call_allocator<A: Message + Default>(
        &self,
        snapshot: &Snapshot,
        service: &Service,
        rpc: &'static str,
        request: &impl Message,
    ) -> Result<A, CallError> {
        let options = CallOptions {
            may_be_unavailable: true,
            // A probe that repeats Reserve would reserve.
            probe: false,
            ..CallOptions::new(rpc, self.config().deadline)
        };
        Ok(self.call(options, snapshot, service, request).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn remaining_ends_before_the_hold() {
        let held = Reservation {
            service: Arc::default(),
            id: "a-1".into(),
            requested_at: Instant::now(),
            annotations: BTreeMap::new(),
        };
        assert!(held.remaining() < MAX_HOLD);
        tokio::time::advance(MAX_HOLD - BINDING_MARGIN - Duration::from_millis(1)).await;
        assert!(!held.remaining().is_zero());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(held.remaining().is_zero());
    }
}
