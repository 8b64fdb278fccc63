//! Replicas of an allocator that never grant the same card twice: the holder of a Lease grants,
//! and the other replicas forward Reserve, Confirm and Release to it, in one hop.
//!
//! A Lease is simpler than to assign each node to a replica by a hash, where each change of
//! membership moves nodes and the replicas must first agree on their members. A Lease needs no API
//! write per pod and names the holder's address. It does not spread the work, but a grant takes
//! only one lock and no I/O.
//!
//! A new holder does not know the last grants of its predecessor, whose Bindings may be under
//! way for the longest hold: it grants nothing for that time, unless the Lease was handed over.
//! A stopping holder waits until its grants are confirmed, released or expired before it gives
//! up the Lease. A replica without a Lease also waits after its start.
//!
//! Proof that nothing is granted twice: a caller counts the hold from a time before its request,
//! and so before the holder checks its term. A term ends (`renew_deadline`) before another may
//! begin (`duration`), the new holder then waits for a whole hold, and a Binding is written at
//! least a second before the end of its hold or not at all. So the new holder's watch shows all
//! bound pods if it is less than a second late, or, after a hand-over, less than [`CATCH_UP`] late.

mod open_grants;
mod peer;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use tautline_runtime::{
    lease::{self, Term},
    tasks::Tasks,
};
use tautline_sdk::{
    Allocator, AllocatorError, CostAnswer, CostChanges, CostRequest, Evaluation, EvaluationRequest,
    InFlightPod, MAX_HOLD, ProviderError, ReservationRef, ReservationRequest, Reserved,
    RuleProvider, Server,
};
use tokio::{sync::watch, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

pub use peer::PeerTls;

use self::{
    open_grants::OpenGrants,
    peer::{Peer, Peers},
};

tautline_runtime::metrics! {
    pub(crate) struct Metrics {
        forwarded: Family<ForwardOutcome, Counter> => "allocator_passed_on",
            "Reserve, Confirm and Release calls forwarded to the replica that reserves, by outcome";
        granting: Gauge => "allocator_granting",
            "1 if this replica reserves, 0 if it forwards requests";
    }
    labels ForwardOutcome { outcome: &'static str }
}

/// The time after a hand-over within which the watch must show the last Bindings.
const CATCH_UP: Duration = Duration::from_millis(500);
/// The time between two lookups of the Lease's holder.
const HOLDER_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two checks, before a hand-over, that no grant is under way.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The time by which a call under way may outlast the longest hold.
const DRAIN_MARGIN: Duration = Duration::from_secs(2);

/// The Lease of the replicas, and TLS between them.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings of the Lease, whose identity has this replica's address.
    lease: lease::LeaseConfig,
    /// The TLS of calls to the holder, which the holder must serve; `None`: they are in plain text.
    pub tls: Option<PeerTls>,
}

impl Config {
    /// Returns the configuration with a Lease. The other replicas call this replica at `advertise`
    /// (HOST:PORT). `identity` must be unique over time.
    pub fn new(namespace: &str, name: &str, identity: &str, advertise: &str) -> Self {
        let identity = format!("{identity}@{advertise}");
        Self {
            lease: lease::LeaseConfig::new(namespace, name, identity),
            tls: None,
        }
    }

    /// Sets the duration of the Lease, at least 3 s. A silent holder is replaced after this
    /// duration, and steps down after two thirds of the duration.
    #[must_use]
    pub fn with_duration(mut self, duration: Duration) -> Self {
        self.lease.duration = duration.max(Duration::from_secs(3));
        self.lease.renew_deadline = self.lease.duration.mul_f64(2.0 / 3.0);
        self.lease.retry = self.lease.duration.div_f64(6.0);
        self
    }
}

enum Role {
    Granting(Granting),
    Standby(Option<Arc<Peer>>),
}

struct Granting {
    /// The term in which this replica holds the Lease; `None`: there are no other replicas.
    term: Option<Term>,
    not_before: Instant,
}

impl Granting {
    fn holds(&self) -> bool {
        self.term.as_ref().is_none_or(Term::is_active)
    }
}

/// An allocator of which one replica grants; the other replicas forward to it. As a provider it
/// sends changes of costs only while it grants, because a standby does not know the reservations.
pub struct Replicas<A> {
    inner: Arc<A>,
    role: ArcSwap<Role>,
    open_grants: OpenGrants,
    granting: Gauge,
}

impl<A: Allocator> Replicas<A> {
    /// Returns the only replica. It grants nothing for the longest hold after its start, because
    /// its predecessor may have granted just before.
    pub fn alone(inner: Arc<A>, server: &mut Server) -> Arc<Self> {
        let granting = Metrics::registered("", &mut server.registry).granting;
        let made = Self::new(inner, granting);
        made.set_role(Role::Granting(Granting {
            term: None,
            not_before: Instant::now() + MAX_HOLD,
        }));
        Arc::new(made)
    }

    /// Returns a replica that is a candidate for the Lease once the server is ready. The server
    /// stops after the replica has given up the Lease.
    pub fn of_lease(
        inner: Arc<A>,
        config: Config,
        client: Client,
        server: &mut Server,
        tasks: &mut Tasks,
    ) -> Result<Arc<Self>> {
        let metrics = Metrics::registered("", &mut server.registry);
        let mut peers =
            Peers::new(config.tls, metrics.forwarded).context("TLS between replicas")?;
        let made = Arc::new(Self::new(inner, metrics.granting));
        let (stop, given_up) = (tasks.stop_token(), CancellationToken::new());
        let readiness = server.readiness.clone();
        server.drain_until(given_up.clone());
        let replicas = Arc::clone(&made);
        tasks.spawn("lease", async move {
            let _given_up = given_up.drop_guard();
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = readiness.wait() => {}
            }
            replicas
                .run_election(&client, &config.lease, &mut peers, &stop)
                .await;
            Ok(())
        });
        Ok(made)
    }

    fn new(inner: Arc<A>, granting: Gauge) -> Self {
        Self {
            inner,
            role: ArcSwap::from_pointee(Role::Standby(None)),
            open_grants: OpenGrants::default(),
            granting,
        }
    }

    fn set_role(&self, role: Role) {
        self.granting.set(matches!(role, Role::Granting(_)).into());
        self.role.store(Arc::new(role));
    }

    /// Takes part in the election until `stop`, also after a lost term.
    async fn run_election(
        &self,
        client: &Client,
        config: &lease::LeaseConfig,
        peers: &mut Peers,
        stop: &CancellationToken,
    ) {
        let api: Api<Lease> = Api::namespaced(client.clone(), &config.namespace);
        while !stop.is_cancelled() {
            let (leader, terms) = watch::channel(None);
            let (ended, ()) = tokio::join!(
                lease::run(client.clone(), config.clone(), leader, stop.clone()),
                self.follow_terms(terms, &api, config, peers, stop),
            );
            if let Err(error) = ended {
                tracing::warn!("{error:#}; this replica forwards requests from now on");
            }
        }
    }

    async fn follow_terms(
        &self,
        mut terms: watch::Receiver<Option<Term>>,
        api: &Api<Lease>,
        config: &lease::LeaseConfig,
        peers: &mut Peers,
        stop: &CancellationToken,
    ) {
        let mut holder_poll = tokio::time::interval(HOLDER_POLL_INTERVAL);
        holder_poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut files = peers.watch_files();
        loop {
            tokio::select! {
                changed = terms.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let term = terms.borrow_and_update().clone();
                    match term {
                        Some(term) => self.lead(term),
                        None => self.step_down(stop.is_cancelled()).await,
                    }
                }
                _ = holder_poll.tick() => self.find_holder(api, config, peers).await,
                true = files.next(stop) => peers.reload(),
            }
        }
    }

    fn lead(&self, term: Term) {
        let wait = if term.handed_over { CATCH_UP } else { MAX_HOLD };
        tracing::info!(handed_over = term.handed_over, "this replica reserves");
        self.set_role(Role::Granting(Granting {
            not_before: Instant::now() + wait,
            term: Some(term),
        }));
    }

    /// Stops granting. Before a hand-over, it first waits until no grant of this replica or of its
    /// predecessor is under way, because the next holder grants at once.
    async fn step_down(&self, handing_over: bool) {
        let latest = Instant::now() + MAX_HOLD + DRAIN_MARGIN;
        if let Role::Granting(granting) = &*self.role.load_full() {
            let quiet = |now| now >= granting.not_before && self.open_grants.is_quiet(now);
            while handing_over && !quiet(Instant::now()) && Instant::now() < latest {
                tokio::time::sleep(DRAIN_POLL_INTERVAL).await;
            }
        }
        self.set_role(Role::Standby(None));
    }

    async fn find_holder(&self, api: &Api<Lease>, config: &lease::LeaseConfig, peers: &Peers) {
        let role = self.role.load_full();
        let Role::Standby(known) = &*role else {
            return;
        };
        let holder = match lease::holder(api, &config.name).await {
            Ok(holder) => holder.filter(|h| *h != config.identity),
            Err(error) => {
                tracing::debug!(lease = %config.name, %error, "cannot read the holder");
                return;
            }
        };
        let address = holder.as_deref().and_then(|h| Some(h.rsplit_once('@')?.1));
        let peer = address.and_then(|a| peers.connect(a, known.as_ref()));
        self.set_role(Role::Standby(peer));
    }

    async fn grant(
        &self,
        granting: &Granting,
        request: ReservationRequest,
    ) -> Result<Reserved, AllocatorError> {
        // The call begins before the check of the term, so that step_down waits for it.
        let call = self.open_grants.begin();
        let lost = || not_now("this replica is giving up the Lease");
        if !granting.holds() {
            return Err(lost());
        }
        let wait = granting
            .not_before
            .saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            let millis = wait.as_millis();
            return Err(not_now(&format!(
                "what was reserved before this replica took over may be under way for another \
                 {millis} ms"
            )));
        }
        let hold = request.hold;
        let reserved = self.inner.reserve(request).await?;
        if !granting.holds() {
            let given_back = ReservationRef {
                id: reserved.id,
                forwarded: false,
            };
            self.inner.release(given_back).await?;
            return Err(lost());
        }
        call.granted(&reserved.id, Instant::now() + hold);
        Ok(reserved)
    }
}

fn not_now(what: &str) -> AllocatorError {
    AllocatorError::Unavailable(what.to_owned())
}

/// Returns the replica to forward a call to, unless another replica has forwarded the call.
fn holder(peer: &Option<Arc<Peer>>, forwarded: bool) -> Result<&Peer, AllocatorError> {
    match peer {
        _ if forwarded => Err(not_now("this replica does not hold the Lease (any more)")),
        None => Err(not_now("no replica is known to hold the Lease")),
        Some(peer) => Ok(peer),
    }
}

impl<A: Allocator> Allocator for Replicas<A> {
    async fn reserve(&self, request: ReservationRequest) -> Result<Reserved, AllocatorError> {
        // The role and its term live as long as the call.
        match &*self.role.load_full() {
            Role::Granting(granting) => self.grant(granting, request).await,
            Role::Standby(peer) => holder(peer, request.forwarded)?.reserve(request).await,
        }
    }

    async fn confirm(&self, request: ReservationRef) -> Result<(), AllocatorError> {
        match &*self.role.load_full() {
            Role::Granting(_) => {
                let id = request.id.clone();
                let confirmed = self.inner.confirm(request).await;
                self.open_grants.confirmed(&id);
                confirmed
            }
            Role::Standby(peer) => holder(peer, request.forwarded)?.confirm(request).await,
        }
    }

    async fn release(&self, request: ReservationRef) -> Result<(), AllocatorError> {
        match &*self.role.load_full() {
            Role::Granting(_) => {
                let id = request.id.clone();
                self.inner.release(request).await?;
                self.open_grants.released(&id);
                Ok(())
            }
            Role::Standby(peer) => holder(peer, request.forwarded)?.release(request).await,
        }
    }
}

impl<A: RuleProvider + Allocator> RuleProvider for Replicas<A> {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        self.inner.endpoint_cost(request).await
    }

    async fn evaluate(&self, request: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        self.inner.evaluate(request).await
    }

    fn changes(&self) -> Option<&CostChanges> {
        let grants = matches!(&**self.role.load(), Role::Granting(granting) if granting.holds());
        self.inner.changes().filter(|_| grants)
    }

    fn placed(&self, pod: InFlightPod) {
        self.inner.placed(pod);
    }

    fn ended(&self, uid: &str) {
        self.inner.ended(uid);
    }
}

#[cfg(test)]
mod tests {
    use tautline_runtime::cluster_store::ClusterStore;

    use super::*;
    use crate::GpuSlice;

    #[tokio::test]
    async fn only_the_granting_replica_sends_costs_ahead() {
        let provider = GpuSlice::new(ClusterStore::default(), crate::Config::default());
        let replicas = Replicas::new(Arc::new(provider), Gauge::default());
        assert!(replicas.changes().is_none());
        let (not_before, term) = (Instant::now(), None);
        replicas.set_role(Role::Granting(Granting { term, not_before }));
        assert!(replicas.changes().is_some());
        replicas.set_role(Role::Standby(None));
        assert!(replicas.changes().is_none());
    }
}
