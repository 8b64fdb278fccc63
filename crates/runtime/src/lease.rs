//! Leader election by a Lease, which kube_runtime does not have. It compares local times only, so
//! clocks need not agree.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, bail};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::api_call::{ApiCallError, within};

const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The configuration of an election.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// The identity of this candidate: the pod's name and a unique suffix.
    pub identity: String,
    /// The time without renewal after which another candidate may lead.
    pub duration: Duration,
    /// The time without renewal after which the leader steps down.
    pub renew_deadline: Duration,
    /// The time between two reads or renewals.
    pub retry: Duration,
}

impl LeaseConfig {
    /// An election with a duration of 12 s, a renewal deadline of 8 s, and a retry after 2 s.
    pub fn new(namespace: &str, name: &str, identity: String) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity,
            duration: Duration::from_secs(12),
            renew_deadline: Duration::from_secs(8),
            retry: Duration::from_secs(2),
        }
    }
}

/// A term of leadership. Tasks hold a clone; the Lease is released when all are dropped.
#[derive(Clone, Debug)]
pub struct Term {
    /// The token that is cancelled at the end of the term.
    pub ended: CancellationToken,
    /// True if the previous leader released the Lease, so that its work is complete.
    pub handed_over: bool,
    renewed: Arc<Mutex<Instant>>,
    renew_deadline: Duration,
    _held: mpsc::Sender<()>,
}

impl Term {
    /// Returns whether no other candidate can lead now. Check it before any action that must not
    /// happen twice: the process may have been suspended.
    pub fn is_active(&self) -> bool {
        !self.ended.is_cancelled() && self.renewed.lock().elapsed() < self.renew_deadline
    }
}

/// Takes part in the election until `stop`; `leader` receives the term.
///
/// # Errors
/// The Lease was lost: the process should restart as a candidate.
pub async fn run(
    client: Client,
    config: LeaseConfig,
    leader: watch::Sender<Option<Term>>,
    stop: CancellationToken,
) -> Result<()> {
    let api: Api<Lease> = Api::namespaced(client, &config.namespace);
    let mut candidate = Candidate::default();
    let (mut lease, handed_over) = loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = sleep(if candidate.looked { config.retry } else { Duration::ZERO }) => {}
        }
        match within(config.retry, candidate.try_to_lead(&api, &config)).await {
            Ok(Some(won)) => break won,
            Ok(None) => {}
            // Another candidate was first.
            Err(error) if error.code() == Some(409) => {}
            Err(error) => {
                let error = error.message();
                tracing::warn!(lease = %config.name, error, "cannot take part in the election")
            }
        }
    };
    tracing::info!(lease = %config.name, identity = %config.identity, "leading");
    let (guard, mut released) = mpsc::channel(1);
    let term = Term {
        ended: CancellationToken::new(),
        handed_over,
        renewed: Arc::new(Mutex::new(Instant::now())),
        renew_deadline: config.renew_deadline,
        _held: guard,
    };
    let (over, renewed) = (term.ended.clone(), Arc::clone(&term.renewed));
    leader.send_replace(Some(term));
    let mut stopping = false;
    loop {
        tokio::select! {
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                over.cancel();
                leader.send_replace(None);
                continue;
            }
            _ = released.recv(), if stopping => {
                _ = within(config.retry, release_lease(&api, lease)).await;
                return Ok(());
            }
            () = sleep(config.retry) => {}
        }
        let start = Instant::now();
        match within(config.retry, renew(&api, &config, lease.clone())).await {
            Ok(new) => {
                lease = new;
                *renewed.lock() = start;
            }
            Err(error) => {
                let error = error.message();
                tracing::warn!(lease = %config.name, error, "cannot renew the Lease");
                let late = || renewed.lock().elapsed() >= config.renew_deadline;
                // The Lease is deleted, or another candidate holds it.
                let taken = !late() && lost(&api, &config).await;
                if taken || late() {
                    over.cancel();
                    leader.send_replace(None);
                    bail!("the Lease {} is lost: {error}", config.name);
                }
                // A conflict on our own Lease: continue from its version.
                if let Ok(there) = within(config.retry, api.get(&config.name)).await {
                    let holder = there
                        .spec
                        .as_ref()
                        .and_then(|s| s.holder_identity.as_deref());
                    if holder.is_none_or(|h| h.is_empty() || h == config.identity) {
                        lease = there;
                    }
                }
            }
        }
    }
}

#[derive(Default)]
struct Candidate {
    looked: bool,
    /// The Lease's version, and the time when this candidate first saw it.
    seen: Option<(String, Instant)>,
}

impl Candidate {
    /// Returns the Lease if this candidate leads now, and whether the previous leader released it.
    async fn try_to_lead(
        &mut self,
        api: &Api<Lease>,
        config: &LeaseConfig,
    ) -> kube::Result<Option<(Lease, bool)>> {
        self.looked = true;
        let params = PostParams::default();
        let Some(mut lease) = api.get_opt(&config.name).await? else {
            // The Lease was deleted by hand; its leader may not know yet.
            if self
                .seen
                .as_ref()
                .is_some_and(|(_, at)| at.elapsed() < config.duration)
            {
                return Ok(None);
            }
            let fresh = Lease {
                metadata: ObjectMeta {
                    name: Some(config.name.clone()),
                    namespace: Some(config.namespace.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(lease_spec(config, None)),
            };
            let made = api.create(&params, &fresh).await?;
            return Ok(Some((made, false)));
        };
        let spec = lease.spec.take().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if !holder.is_empty() && holder != config.identity {
            let version = lease.metadata.resource_version.clone().unwrap_or_default();
            let lasts = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
            let since = match &self.seen {
                Some((seen, since)) if *seen == version => *since,
                _ => {
                    self.seen = Some((version, Instant::now()));
                    return Ok(None);
                }
            };
            if since.elapsed() < Duration::from_secs(lasts) {
                return Ok(None);
            }
        }
        // `release_lease` writes an empty holder.
        let handed_over = spec.holder_identity.as_deref() == Some("");
        lease.spec = Some(lease_spec(config, Some(spec)));
        let taken = api.replace(&config.name, &params, &lease).await?;
        Ok(Some((taken, handed_over)))
    }
}

fn lease_spec(config: &LeaseConfig, before: Option<LeaseSpec>) -> LeaseSpec {
    let now = Some(MicroTime(Timestamp::now()));
    let transitions = before
        .and_then(|b| b.lease_transitions)
        .map_or(0, |t| t + 1);
    LeaseSpec {
        holder_identity: Some(config.identity.clone()),
        lease_duration_seconds: Some(i32::try_from(config.duration.as_secs()).unwrap_or(i32::MAX)),
        acquire_time: now.clone(),
        renew_time: now,
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    }
}

async fn renew(api: &Api<Lease>, config: &LeaseConfig, mut lease: Lease) -> kube::Result<Lease> {
    if let Some(spec) = &mut lease.spec {
        spec.holder_identity = Some(config.identity.clone());
        spec.renew_time = Some(MicroTime(Timestamp::now()));
    }
    // Conflicts if another candidate took the Lease.
    api.replace(&config.name, &PostParams::default(), &lease)
        .await
}

async fn release_lease(api: &Api<Lease>, mut lease: Lease) -> kube::Result<()> {
    let name = lease.metadata.name.clone().unwrap_or_default();
    if let Some(spec) = &mut lease.spec {
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
    }
    api.replace(&name, &PostParams::default(), &lease).await?;
    Ok(())
}

async fn lost(api: &Api<Lease>, config: &LeaseConfig) -> bool {
    match within(config.retry, api.get_opt(&config.name)).await {
        Ok(None) => true,
        Ok(Some(lease)) => {
            let holder = lease.spec.and_then(|s| s.holder_identity);
            holder.is_some_and(|h| !h.is_empty() && h != config.identity)
        }
        _ => false,
    }
}

/// Reads the holder that the Lease names, even if it no longer renews the Lease.
///
/// # Errors
/// The Lease cannot be read.
pub async fn holder(api: &Api<Lease>, name: &str) -> Result<Option<String>, ApiCallError> {
    let spec = within(READ_TIMEOUT, api.get_opt(name))
        .await?
        .and_then(|l| l.spec);
    let holder = spec.and_then(|s| s.holder_identity);
    Ok(holder.filter(|h| !h.is_empty()))
}

/// Returns whether the Lease has a holder and was renewed recently, by this process' clock.
///
/// # Errors
/// The Lease cannot be read.
pub async fn is_held(api: &Api<Lease>, name: &str) -> Result<bool, ApiCallError> {
    let lease = within(READ_TIMEOUT, api.get_opt(name)).await?;
    let Some(spec) = lease.and_then(|l| l.spec) else {
        return Ok(false);
    };
    let has_holder = spec.holder_identity.is_some_and(|h| !h.is_empty());
    let lasts = i64::from(spec.lease_duration_seconds.unwrap_or(0));
    let age = spec
        .renew_time
        .map(|t| Timestamp::now().as_second() - t.0.as_second());
    // Twice the duration, for clock differences and a handover in progress.
    Ok(has_holder && age.is_some_and(|age| age <= 2 * lasts))
}
