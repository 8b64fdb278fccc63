//! One leader among replicas, by a Lease. Times are this process's own, so clocks
//! need not agree: a Lease has expired when it has been seen unchanged for its
//! duration.

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

/// The most that a look of those who only want to know may take.
const LOOK: Duration = Duration::from_secs(5);

/// Which Lease, for whom, and how patiently.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    pub namespace: String,
    pub name: String,
    /// Who we are: the pod's name and something that no other replica has.
    pub identity: String,
    /// A leader that is silent for so long is none any more.
    pub duration: Duration,
    /// A leader that could not renew for so long steps down by itself.
    pub renew_deadline: Duration,
    /// Between two looks at the Lease.
    pub retry: Duration,
}

impl LeaseConfig {
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

/// A time of leading. Whoever acts for the leader holds a clone, and drops it
/// when done: the Lease is given up only then.
#[derive(Clone, Debug)]
pub struct Term {
    /// Cancelled when the term is over.
    pub ended: CancellationToken,
    /// The Lease was found given up: whoever led before has ended what it did. If
    /// not, nobody led, or a leader fell silent in the middle of something.
    pub handed_over: bool,
    renewed: Arc<Mutex<Instant>>,
    renew_deadline: Duration,
    _held: mpsc::Sender<()>,
}

impl Term {
    /// Whether nobody else can lead at this instant. To be asked before anything
    /// that must not be done twice: a process may have slept for long.
    pub fn is_active(&self) -> bool {
        !self.ended.is_cancelled() && self.renewed.lock().elapsed() < self.renew_deadline
    }
}

/// Takes part in the election until told to stop. `leader` has the term while
/// this process leads.
///
/// # Errors
/// The Lease was lost: the process should end, and start again as a candidate.
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
            Err(error) => tracing::warn!(lease = %config.name, %error, "cannot stand for leader"),
        }
    };
    tracing::info!(lease = %config.name, identity = %config.identity, "leading");
    let (held, mut released) = mpsc::channel(1);
    let term = Term {
        ended: CancellationToken::new(),
        handed_over,
        renewed: Arc::new(Mutex::new(Instant::now())),
        renew_deadline: config.renew_deadline,
        _held: held,
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
            // Nobody acts any more: hand over.
            _ = released.recv(), if stopping => {
                _ = within(config.retry, give_up(&api, lease)).await;
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
                tracing::warn!(lease = %config.name, %error, "cannot renew");
                let late = || renewed.lock().elapsed() >= config.renew_deadline;
                // Gone, or somebody else's: nothing is left to renew.
                let taken = !late() && lost(&api, &config).await;
                if taken || late() {
                    over.cancel();
                    leader.send_replace(None);
                    bail!("the Lease {} is lost: {error}", config.name);
                }
                // A conflict on our own Lease: go on from what is there.
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

/// What a candidate has seen.
#[derive(Default)]
struct Candidate {
    looked: bool,
    /// The Lease's version, and since when it has been that.
    seen: Option<(String, Instant)>,
}

impl Candidate {
    /// The Lease, if it is ours now, and whether it was handed over.
    async fn try_to_lead(
        &mut self,
        api: &Api<Lease>,
        config: &LeaseConfig,
    ) -> kube::Result<Option<(Lease, bool)>> {
        self.looked = true;
        let params = PostParams::default();
        let Some(mut lease) = api.get_opt(&config.name).await? else {
            // Deleted by hand: its leader may not know yet.
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
        // As `give_up` writes it.
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
    // Optimistic: whoever has taken it over meanwhile makes this a conflict.
    api.replace(&config.name, &PostParams::default(), &lease)
        .await
}

async fn give_up(api: &Api<Lease>, mut lease: Lease) -> kube::Result<()> {
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

/// Who holds the Lease by its own word, renewed or not. For those who only want to
/// know.
pub async fn holder(api: &Api<Lease>, name: &str) -> Result<Option<String>, ApiCallError> {
    let spec = within(LOOK, api.get_opt(name)).await?.and_then(|l| l.spec);
    let holder = spec.and_then(|s| s.holder_identity);
    Ok(holder.filter(|h| !h.is_empty()))
}

/// Whether someone leads by this Lease: it is held, and was renewed of late. For
/// those who only want to know; their clock decides.
pub async fn is_held(api: &Api<Lease>, name: &str) -> Result<bool, ApiCallError> {
    let lease = within(LOOK, api.get_opt(name)).await?;
    let Some(spec) = lease.and_then(|l| l.spec) else {
        return Ok(false);
    };
    let held = spec.holder_identity.is_some_and(|h| !h.is_empty());
    let lasts = i64::from(spec.lease_duration_seconds.unwrap_or(0));
    let age = spec
        .renew_time
        .map(|t| Timestamp::now().as_second() - t.0.as_second());
    // Twice, for clocks that differ and a hand-over under way.
    Ok(held && age.is_some_and(|age| age <= 2 * lasts))
}
