#![doc = include_str!("../README.md")]
//!
//! | to | use |
//! |---|---|
//! | load data before the first request, or serve more on the same port | [`Server`] |
//! | hand out countable things as pods are bound | [`Allocator`], [`reservations`] |
//! | send costs before kube-scheduler asks | [`CostChanges`] |
//! | send spans of calls to a collector of OpenTelemetry | the feature `traces`, and its environment variables |
//! | test over real gRPC | [`testkit`] |

#![warn(missing_docs)]

mod allocate;
mod answer;
mod calls;
mod config;
mod cost_changes;
mod cost_streams;
mod gate;
mod pages;
pub mod reservations;
mod server;
mod service;
#[cfg(feature = "traces")]
mod spans;
pub mod testkit;
mod types;
mod watch_costs;

use std::future::Future;

pub use allocate::{
    AllocatorError, ReservationRef, ReservationRequest, Reserved, add_forwarded_metadata,
};
pub use answer::CostAnswer;
pub use config::Config;
pub use cost_changes::CostChanges;
pub use pages::AdminPage;
pub use server::{Server, example_metrics, serve};
pub use tautline_proto::{MAX_HOLD, endpoint_cost::NodeCost};
pub use tautline_serve::{admin::Readiness, tasks::Tasks, tls::ServerFiles as TlsFiles};
pub use tautline_types::{Compliance, ContainerKind, Reference};
pub use types::{
    Container, CostRequest, Evaluation, EvaluationRequest, InFlightPod, Peer, PeerCounts,
    ProviderError, Rule, Workload,
};

/// A provider, which measures one rule, or several. A function that returns costs is a provider
/// that does not evaluate.
///
/// ```
/// use tautline_sdk::{CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider};
///
/// /// At most one peer on a node.
/// struct Spread;
///
/// impl RuleProvider for Spread {
///     async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
///         let peers = request.peer_counts();
///         let mut answer = CostAnswer::with_capacity(request.eligible_nodes.len());
///         for node in &request.eligible_nodes {
///             match peers.on(node) {
///                 0 => answer.usable(node, 0, "no peers"),
///                 count => answer.unusable(node, "Taken", format!("{count} peers"), true),
///             }
///         }
///         Ok(answer)
///     }
///     async fn evaluate(&self, request: EvaluationRequest) -> Result<Evaluation, ProviderError> {
///         let mut nodes: Vec<_> = request.target_nodes.values().flatten().collect();
///         nodes.sort();
///         match nodes.windows(2).find(|two| two[0] == two[1]) {
///             Some(two) => Ok(Evaluation::violation(format!("two pods on {}", two[0]))),
///             None => Ok(Evaluation::compliant("every pod has a node of its own")),
///         }
///     }
/// }
/// ```
pub trait RuleProvider: Send + Sync + 'static {
    /// Returns the cost of each eligible node for the workload. kube-scheduler waits for the
    /// answer: answer from memory, within a few milliseconds.
    ///
    /// # Errors
    /// The caller treats the rule as unavailable. After several consecutive
    /// [`ProviderError::Internal`] it stops calling for a while.
    fn endpoint_cost(
        &self,
        request: CostRequest,
    ) -> impl Future<Output = Result<CostAnswer, ProviderError>> + Send;

    /// Returns whether placed objects comply with the rule. By default they do, which suits rules
    /// that count only when a pod is placed.
    ///
    /// # Errors
    /// The caller reports [`Compliance::Error`].
    fn evaluate(
        &self,
        _request: EvaluationRequest,
    ) -> impl Future<Output = Result<Evaluation, ProviderError>> + Send {
        async { Ok(Evaluation::compliant("checked only when pods are placed")) }
    }

    /// Returns the changes of the costs, with which callers receive costs before kube-scheduler
    /// asks: see [`CostChanges`]. By default it is `None`, and callers ask for each pod. `None` ends open
    /// streams.
    fn changes(&self) -> Option<&CostChanges> {
        None
    }

    /// Reports that a pod was promised a node. An [`Allocator`] with [`changes`](Self::changes)
    /// counts it there, by its UID, until its own view of the cluster shows the pod, or the pod
    /// [ended](Self::ended).
    fn placed(&self, _pod: InFlightPod) {}

    /// Reports that a placed pod, by its UID, does not go to the node, or that every view of the
    /// cluster shows it by now.
    fn ended(&self, _uid: &str) {}
}

impl<F, Answer> RuleProvider for F
where
    F: Fn(CostRequest) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<CostAnswer, ProviderError>> + Send,
{
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        self(request).await
    }
}

/// An allocator, which hands out countable things, such as devices, as pods are bound. The extender
/// reserves, writes the Binding, and confirms or releases.
/// [`Reservations`](reservations::Reservations) stores the reservations, and
/// [`Server::spawn_with_allocator`] serves the allocator with a [`RuleProvider`].
///
/// ```
/// use std::{sync::Mutex, time::Instant};
///
/// use tautline_sdk::{
///     Allocator, AllocatorError, ReservationRef, ReservationRequest, Reserved,
///     reservations::{Key, Reservations},
/// };
///
/// /// One device per node.
/// struct Devices(Mutex<Reservations<String>>);
///
/// impl Allocator for Devices {
///     async fn reserve(&self, request: ReservationRequest) -> Result<Reserved, AllocatorError> {
///         let (now, hold, node) = (Instant::now(), request.hold, request.node);
///         let key = Key { uid: request.uid, node: node.clone(), rule: request.rule };
///         let mut reservations = self.0.lock().unwrap();
///         let reserved = reservations.reserve(now, key, hold, |others| {
///             match others.grants_on_node(now, &node).next() {
///                 None => Ok("device-0".to_owned()),
///                 Some(_) => Err(AllocatorError::Exhausted(format!("{node} has no free device"))),
///             }
///         })?;
///         let annotation = ("example.com/device".to_owned(), reserved.grant);
///         Ok(Reserved { id: reserved.id, annotations: [annotation].into(), expires: None })
///     }
///     async fn confirm(&self, reservation: ReservationRef) -> Result<(), AllocatorError> {
///         let confirmed = self.0.lock().unwrap().confirm(Instant::now(), &reservation.id);
///         confirmed.map_err(|error| AllocatorError::Expired(error.to_string()))
///     }
///     async fn release(&self, reservation: ReservationRef) -> Result<(), AllocatorError> {
///         self.0.lock().unwrap().release(Instant::now(), &reservation.id);
///         Ok(())
///     }
/// }
/// ```
pub trait Allocator: Send + Sync + 'static {
    /// Reserves the rule's request on the node for the time [`hold`](ReservationRequest::hold).
    /// Repeated calls for one pod, node and rule return the same reservation.
    ///
    /// # Errors
    /// The pod is not bound to the node.
    fn reserve(
        &self,
        request: ReservationRequest,
    ) -> impl Future<Output = Result<Reserved, AllocatorError>> + Send;

    /// Confirms a reservation, since the pod is bound. The pod has the grant until it is gone.
    ///
    /// # Errors
    /// [`AllocatorError::Expired`] if the reservation has ended.
    fn confirm(
        &self,
        request: ReservationRef,
    ) -> impl Future<Output = Result<(), AllocatorError>> + Send;

    /// Releases a reservation, since the pod was not bound. An unknown reservation is not an error.
    ///
    /// # Errors
    /// The reservation ends by its expiry.
    fn release(
        &self,
        request: ReservationRef,
    ) -> impl Future<Output = Result<(), AllocatorError>> + Send;
}
