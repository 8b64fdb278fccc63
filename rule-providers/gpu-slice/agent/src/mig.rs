//! Makes and destroys the MIG instances on this node. An instance is made for the pod whose record
//! names it, or for the claim that has it. It is destroyed when neither has named it for a while,
//! unless a process uses it or the administrator has made it.

mod plan;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use tautline_gpu_placement::node_inventory::{InventoryCard, NodeInventory};
use tautline_nvml::{Action, MigDestroy, MigSlot, Outcome, Reading};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval, timeout},
};

use self::plan::Wanted;
use crate::{
    channels::{self, Call, Failure},
    dra::PreparedClaims,
    pods::Pods,
    reader::{ReaderCalls, ReaderState, Snapshot},
    whole_file,
};

/// The time for which an instance stays that no record names and no process uses.
const UNUSED_LINGER: Duration = Duration::from_secs(10);
/// The interval at which unused instances are searched for.
const TIDY_INTERVAL: Duration = Duration::from_secs(2);
/// The time in which an instance must be made, below the kubelet's 30 s.
const MAKE_LIMIT: Duration = Duration::from_secs(15);
/// The largest number of containers that wait for their instances.
const MAX_WAITING_CONTAINERS: usize = 64;

/// All MIG instances that the agent has made.
pub(crate) type OwnInstances = Arc<BTreeSet<MigSlot>>;

type Made = Result<String, Failure>;

/// A handle to ask the [`Keeper`] for instances.
#[derive(Clone, Debug)]
pub(crate) struct Instances(mpsc::Sender<Call<Wanted, Made>>);

impl Instances {
    /// Returns the UUID of the instance that a record names, and makes the instance if it does not
    /// exist.
    ///
    /// # Errors
    /// The text gives the reason why there is no such instance.
    pub async fn make(&self, card: &InventoryCard, milli: u16, start: u8) -> Made {
        let wanted = Wanted::new(card, milli, start).ok_or_else(|| {
            let card = &card.uuid;
            Failure(format!(
                "card {card} has no MIG instance of {milli}m at memory slice {start}"
            ))
        })?;
        match timeout(MAKE_LIMIT, channels::ask(&self.0, wanted)).await {
            Ok(Some(made)) => made,
            Ok(None) => Err(Failure::stopping()),
            Err(_) => Err(Failure(format!(
                "its MIG instance was not made in {MAKE_LIMIT:?}"
            ))),
        }
    }
}

/// Makes and destroys instances, one at a time.
pub(crate) struct Keeper {
    calls: ReaderCalls,
    snapshots: watch::Receiver<Snapshot>,
    inventory: watch::Receiver<Arc<NodeInventory>>,
    pods: Arc<Pods>,
    claims: Arc<PreparedClaims>,
    asks: mpsc::Receiver<Call<Wanted, Made>>,
    own: watch::Sender<OwnInstances>,
    /// The file that lists the agent's instances. Like these, it does not outlive a reboot.
    file: PathBuf,
    /// The times since when instances of the agent are unused, or gone.
    since: BTreeMap<MigSlot, Instant>,
    linger: Duration,
}

impl Keeper {
    /// Creates a keeper; `file` lists the agent's instances, which outlive the agent's process.
    pub fn new(
        file: PathBuf,
        calls: ReaderCalls,
        snapshots: watch::Receiver<Snapshot>,
        inventory: watch::Receiver<Arc<NodeInventory>>,
        pods: Arc<Pods>,
        claims: Arc<PreparedClaims>,
    ) -> (Self, Instances) {
        let (asking, asks) = mpsc::channel(MAX_WAITING_CONTAINERS);
        // If the file cannot be read, all instances count as the administrator's.
        let own = whole_file::read(&file).unwrap_or_else(|error| {
            let path = file.display();
            tracing::warn!(%path, %error, "MIG instances of an earlier agent are not destroyed");
            BTreeSet::new()
        });
        let keeper = Self {
            calls,
            snapshots,
            inventory,
            pods,
            claims,
            asks,
            own: watch::Sender::new(Arc::new(own)),
            file,
            since: BTreeMap::new(),
            linger: UNUSED_LINGER,
        };
        (keeper, Instances(asking))
    }

    /// Returns the instances that the agent has made; all others are the administrator's.
    pub fn own(&self) -> watch::Receiver<OwnInstances> {
        self.own.subscribe()
    }

    /// Runs until nobody asks any more.
    pub async fn run(mut self) {
        let mut tick = interval(TIDY_INTERVAL.min(self.linger));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                ask = self.asks.recv() => {
                    let Some((wanted, answer)) = ask else { return };
                    _ = answer.send(self.make(&wanted).await);
                }
                _ = tick.tick() => self.tidy().await,
            }
        }
    }

    async fn make(&mut self, new: &Wanted) -> Made {
        let reading = self.reading();
        let of = &new.instance;
        let mut cards = reading.iter().flat_map(|reading| &reading.cards);
        let card = cards.find(|card| card.uuid == of.card);
        let instances = card.and_then(|card| card.mig.as_deref());
        let instances = instances.unwrap_or_default();
        let own = Arc::clone(&self.own.borrow());
        for going in plan::in_the_way(new, instances, &own, &self.wanted())? {
            self.destroy(going.slot(&of.card), going.gpu_instance)
                .await?;
        }
        // The instance is listed before it is made, since one that is not listed counts as the
        // administrator's.
        if instances.iter().all(|one| one.slot(&of.card) != *of) {
            self.change_own(|own| _ = own.insert(of.clone()))?;
        }
        self.since.remove(of);
        match self.calls.ask(Action::Create(of.clone())).await {
            Outcome::Instance(made) => {
                let MigSlot { card, profile, .. } = of;
                tracing::info!(card, profile, start = of.start, "MIG instance");
                Ok(made.uuid)
            }
            Outcome::Error(why) => Err(Failure(why)),
            Outcome::Destroyed(_) => {
                Err(Failure("the reader of GPUs gave a wrong answer".to_owned()))
            }
        }
    }

    async fn destroy(&mut self, slot: MigSlot, gpu_instance: u32) -> Result<(), Failure> {
        let of = slot.clone();
        let destroy = MigDestroy { slot, gpu_instance };
        if let Outcome::Error(why) = self.calls.ask(Action::Destroy(destroy)).await {
            return Err(Failure(why));
        }
        let MigSlot { card, profile, .. } = &of;
        tracing::info!(card, profile, start = of.start, "MIG instance destroyed");
        Ok(())
    }

    /// Destroys the agent's instances that have been unused for a while, and forgets those that
    /// have been gone for a while.
    async fn tidy(&mut self) {
        let own = Arc::clone(&self.own.borrow());
        let Some(reading) = self.reading().filter(|_| !own.is_empty()) else {
            return;
        };
        if !self.pods.are_known() {
            return;
        }
        let unused = plan::unused(&reading, &own, &self.wanted());
        let gone = plan::gone(&reading, &own);
        self.since
            .retain(|of, _| unused.iter().any(|(u, _)| u == of) || gone.contains(of));
        for (of, instance) in unused {
            if self.lingers(&of) {
                continue;
            }
            // A process may still use the instance; then it is tried again after the same time.
            self.since.remove(&of);
            if let Err(why) = self.destroy(of, instance.gpu_instance).await {
                tracing::debug!(%why, "a MIG instance stays");
            }
        }
        let (linger, since) = (self.linger, &self.since);
        let is_gone = |of: &MigSlot| {
            gone.contains(of) && since.get(of).is_some_and(|since| since.elapsed() >= linger)
        };
        let old: Vec<MigSlot> = own.iter().filter(|of| is_gone(of)).cloned().collect();
        if !old.is_empty()
            && let Err(error) = self.change_own(|own| own.retain(|of| !old.contains(of)))
        {
            tracing::warn!(%error, "MIG instances that are gone stay listed");
        }
        for of in gone {
            self.since.entry(of).or_insert_with(Instant::now);
        }
    }

    fn lingers(&mut self, of: &MigSlot) -> bool {
        let since = self.since.entry(of.clone()).or_insert_with(Instant::now);
        since.elapsed() < self.linger
    }

    fn wanted(&self) -> Vec<Wanted> {
        let (pods, claims) = (self.pods.all(), self.claims.all());
        let claimed = claims.iter().flat_map(|(_, claim)| claim.shares());
        let pods = pods.iter().map(|pod| &**pod);
        plan::wanted(pods, claimed, &self.inventory.borrow())
    }

    /// Returns the last reading; `None` while the reader sends no readings.
    fn reading(&self) -> Option<Arc<Reading>> {
        let snapshot = self.snapshots.borrow();
        let reads = snapshot.state == ReaderState::Reading;
        snapshot.reading.clone().filter(|_| reads)
    }

    fn change_own(&self, change: impl FnOnce(&mut BTreeSet<MigSlot>)) -> Result<(), Failure> {
        let mut own = (**self.own.borrow()).clone();
        change(&mut own);
        whole_file::write(&self.file, &own)
            .map_err(|error| Failure(format!("{} is not written: {error}", self.file.display())))?;
        self.own.send_replace(Arc::new(own));
        Ok(())
    }
}
