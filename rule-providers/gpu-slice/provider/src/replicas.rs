//! Replicas of an allocator that never grant the same card twice: the holder of a Lease grants,
//! and the other replicas forward Reserve, Confirm and Release to it, in one hop.
//!
//! A Lease is simpler than owners by a hash of the node: with each change of membership nodes
//! would change owners, with the same uncertainty about grants under way as a new holder has,
//! and the replicas would first have to agree on their members. A Lease needs no API write per
//! pod, and it names the holder's address. It does not spread the work, but that is small: one
//! lock and no I/O per grant.
//!
//! A new holder does not know the last grants of its predecessor: their Bindings may be under
//! way for as long as the longest hold. So it grants nothing for that time, unless the Lease was
//! handed over: a replica that is asked to stop waits until its grants are confirmed, released
//! or expired, and only then gives up the Lease. A replica without a Lease waits after its start
//! for the same reason.
//!
//! Proof that nothing is granted twice: a caller counts the hold from before its request, which
//! is before the holder checks its term. A term ends (`renew_deadline`) before another may begin
//! (`duration`), the new holder then waits for a whole hold, and a Binding is written at least a
//! second before the end of its hold or not at all. So all bound pods are in the new holder's
//! watch, if that is less than a second late; after a hand-over, less than [`CATCH_UP`].

mod config;
mod costs;
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
use prometheus_client::metrics::gauge::Gauge;
use tautline_runtime::{
    lease::{self, Term},
    tasks::Tasks,
};
use tautline_sdk::{
    Allocator, AllocatorError, MAX_HOLD, ReservationRef, ReservationRequest, Reserved, Server,
};
use tokio::{sync::watch, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

pub use config::{Config, PeerTls};
pub use costs::ReplicaCosts;

use self::{
    open_grants::OpenGrants,
    peer::{Peer, Peers},
};

/// Wait after a hand-over, for the watch to show the last Bindings.
const CATCH_UP: Duration = Duration::from_millis(500);
/// How often a standby reads the holder of the Lease.
const HOLDER_POLL: Duration = Duration::from_secs(1);
/// How often a stopping holder checks its grants.
const DRAIN_POLL: Duration = Duration::from_millis(20);
/// The time that a call under way may take beyond the longest hold.
const DRAIN_MARGIN: Duration = Duration::from_secs(2);

/// The role of this replica.
enum Role {
    Granting(Granting),
    /// Forwards requests to the holder, if that is known.
    Standby(Option<Arc<Peer>>),
}

struct Granting {
    /// `None`: there are no other replicas.
    term: Option<Term>,
    /// Nothing is granted before.
    not_before: Instant,
}

impl Granting {
    fn holds(&self) -> bool {
        self.term.as_ref().is_none_or(Term::is_active)
    }
}

/// An allocator that grants only while no other replica does.
pub struct Replicas<A> {
    inner: Arc<A>,
    role: ArcSwap<Role>,
    open_grants: OpenGrants,
    hold: Duration,
    granting: Gauge,
}

impl<A: Allocator> Replicas<A> {
    /// The only replica. It waits for a hold after the start: its former self may
    /// have granted a moment ago.
    pub fn alone(inner: Arc<A>, server: &mut Server) -> Arc<Self> {
        let from = Instant::now() + MAX_HOLD;
        let made = Self::new(inner, MAX_HOLD, server);
        made.set_role(Role::Granting(Granting {
            term: None,
            not_before: from,
        }));
        Arc::new(made)
    }

    /// One of several. Stands for the Lease once the server is ready; the server
    /// then lingers after its stop until the Lease is given up.
    ///
    /// # Errors
    /// TLS files that cannot be read.
    pub fn of_lease(
        inner: Arc<A>,
        config: Config,
        client: Client,
        server: &mut Server,
        tasks: &mut Tasks,
    ) -> Result<Arc<Self>> {
        let peers = Peers::new(config.tls).context("TLS between replicas")?;
        peers.register_metrics(&mut server.registry);
        let made = Arc::new(Self::new(inner, config.hold, server));
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
                .run_election(&client, &config.lease, &peers, &stop)
                .await;
            Ok(())
        });
        Ok(made)
    }

    fn new(inner: Arc<A>, hold: Duration, server: &mut Server) -> Self {
        let granting = Gauge::default();
        server.registry.register(
            "allocator_granting",
            "1 if this replica reserves, 0 if it forwards requests",
            granting.clone(),
        );
        Self {
            inner,
            role: ArcSwap::from_pointee(Role::Standby(None)),
            open_grants: OpenGrants::default(),
            hold,
            granting,
        }
    }

    /// Whether this replica is the one that grants.
    fn grants(&self) -> bool {
        matches!(&**self.role.load(), Role::Granting(granting) if granting.holds())
    }

    fn set_role(&self, role: Role) {
        self.granting.set(matches!(role, Role::Granting(_)).into());
        self.role.store(Arc::new(role));
    }

    /// Takes part in the election until `stop`, again after each lost term.
    async fn run_election(
        &self,
        client: &Client,
        config: &lease::LeaseConfig,
        peers: &Peers,
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

    /// Follows the terms, and the other holder meanwhile, until there is no next.
    async fn follow_terms(
        &self,
        mut terms: watch::Receiver<Option<Term>>,
        api: &Api<Lease>,
        config: &lease::LeaseConfig,
        peers: &Peers,
        stop: &CancellationToken,
    ) {
        let mut look = tokio::time::interval(HOLDER_POLL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
                _ = look.tick() => self.find_holder(api, config, peers).await,
                true = files.next(stop) => peers.reload(),
            }
        }
    }

    fn lead(&self, term: Term) {
        let wait = if term.handed_over {
            CATCH_UP
        } else {
            self.hold
        };
        let from = Instant::now() + wait;
        tracing::info!(handed_over = term.handed_over, "this replica reserves");
        let term = Some(term);
        self.set_role(Role::Granting(Granting {
            term,
            not_before: from,
        }));
    }

    /// Stops granting: the term is over. A replica that hands over first waits until no grant,
    /// of itself or of its predecessor, is under way, because the next holder grants at once.
    async fn step_down(&self, handing_over: bool) {
        let latest = Instant::now() + self.hold + DRAIN_MARGIN;
        if let Role::Granting(granting) = &*self.role.load_full() {
            let quiet = |now| now >= granting.not_before && self.open_grants.is_quiet(now);
            while handing_over && !quiet(Instant::now()) && Instant::now() < latest {
                tokio::time::sleep(DRAIN_POLL).await;
            }
        }
        // Drops the term, and by that gives the Lease up.
        self.set_role(Role::Standby(None));
    }

    /// Finds the holder of the Lease, if it is another replica.
    async fn find_holder(&self, api: &Api<Lease>, config: &lease::LeaseConfig, peers: &Peers) {
        let role = self.role.load_full();
        let Role::Standby(known) = &*role else {
            return;
        };
        let holder = match lease::holder(api, &config.name).await {
            Ok(holder) => holder.filter(|h| *h != config.identity),
            Err(error) => {
                tracing::debug!(lease = %config.name, %error, "cannot look who holds it");
                return;
            }
        };
        let address = holder.as_deref().and_then(|h| Some(h.rsplit_once('@')?.1));
        let peer = address.and_then(|a| peers.connect(a, known.as_ref()));
        self.set_role(Role::Standby(peer));
    }

    /// The replica to forward a request to.
    fn forward_target<'a>(
        &self,
        peer: Option<&'a Arc<Peer>>,
        forwarded: bool,
    ) -> Result<&'a Peer, AllocatorError> {
        match peer {
            _ if forwarded => Err(not_now("this replica does not hold the Lease (any more)")),
            None => Err(not_now("no replica is known to hold the Lease")),
            Some(peer) => Ok(peer),
        }
    }

    async fn grant(
        &self,
        granting: &Granting,
        mut ask: ReservationRequest,
    ) -> Result<Reserved, AllocatorError> {
        // Before the check of the term: step_down then waits for this call.
        let call = self.open_grants.begin();
        let lost = || not_now("this replica is giving up the Lease");
        if !granting.holds() {
            return Err(lost());
        }
        let wait = granting
            .not_before
            .saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            let what = format!(
                "what was reserved before this replica took over may be under way for another {} ms",
                wait.as_millis()
            );
            return Err(AllocatorError::Unavailable(what));
        }
        ask.hold = ask.hold.min(self.hold);
        let hold = ask.hold;
        let reserved = self.inner.reserve(ask).await?;
        if !granting.holds() {
            let id = reserved.id;
            let given_back = ReservationRef {
                id,
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

impl<A: Allocator> Allocator for Replicas<A> {
    async fn reserve(&self, ask: ReservationRequest) -> Result<Reserved, AllocatorError> {
        // The role is held for as long as the call takes, and the term with it.
        match &*self.role.load_full() {
            Role::Granting(granting) => self.grant(granting, ask).await,
            Role::Standby(peer) => {
                self.forward_target(peer.as_ref(), ask.forwarded)?
                    .reserve(ask)
                    .await
            }
        }
    }

    async fn confirm(&self, ask: ReservationRef) -> Result<(), AllocatorError> {
        match &*self.role.load_full() {
            Role::Granting(_) => {
                let id = ask.id.clone();
                let confirmed = self.inner.confirm(ask).await;
                self.open_grants.confirmed(&id);
                confirmed
            }
            Role::Standby(peer) => {
                self.forward_target(peer.as_ref(), ask.forwarded)?
                    .confirm(ask)
                    .await
            }
        }
    }

    async fn release(&self, ask: ReservationRef) -> Result<(), AllocatorError> {
        match &*self.role.load_full() {
            Role::Granting(_) => {
                let id = ask.id.clone();
                self.inner.release(ask).await?;
                self.open_grants.released(&id);
                Ok(())
            }
            Role::Standby(peer) => {
                self.forward_target(peer.as_ref(), ask.forwarded)?
                    .release(ask)
                    .await
            }
        }
    }
}
