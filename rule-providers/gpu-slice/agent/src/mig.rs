//! Makes and destroys the MIG instances on this node. An instance is made for the pod whose record
//! names it. It is destroyed when no record has named it for a while, unless a process uses it or
//! the administrator has made it.

mod own;
mod plan;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use tautline_gpu_placement::node_inventory::{InventoryCard, NodeInventory};
use tautline_nvml::{Action, MigCreate, MigDestroy, MigInstance, Outcome, Reading};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::own::{OwnInstance, OwnInstances};
use self::{own::OwnFile, plan::Wanted};
use crate::{
    pods::Pods,
    reader::{ReaderCalls, ReaderState, Snapshot},
};

/// The time for which an instance stays that no record names and no process uses.
const UNUSED_LINGER: Duration = Duration::from_secs(10);
/// The interval at which unused instances are searched for.
const TIDY_INTERVAL: Duration = Duration::from_secs(2);
/// The time in which an instance must be made, below the kubelet's 30 s.
const MAKE_LIMIT: Duration = Duration::from_secs(15);
/// The largest number of containers that wait for their instances.
const MAX_WAITING_CONTAINERS: usize = 64;

/// A handle to ask the [`Keeper`] for instances.
#[derive(Clone, Debug)]
pub(crate) struct Instances {
    asks: mpsc::Sender<Ask>,
}

#[derive(Debug)]
struct Ask {
    wanted: Wanted,
    answer: oneshot::Sender<Result<String, String>>,
}

impl Instances {
    /// Returns the UUID of the instance that a record names, and makes the instance if it does not
    /// exist.
    ///
    /// # Errors
    /// The text gives the reason why there is no such instance.
    pub async fn make(
        &self,
        card: &InventoryCard,
        milli: u16,
        start: u8,
    ) -> Result<String, String> {
        let wanted = wanted(card, milli, start)?;
        let (answer, answered) = oneshot::channel();
        let ask = async {
            self.asks.send(Ask { wanted, answer }).await.ok()?;
            answered.await.ok()
        };
        match timeout(MAKE_LIMIT, ask).await {
            Ok(Some(made)) => made,
            Ok(None) => Err("the agent stops".to_owned()),
            Err(_) => Err(format!("its MIG instance was not made in {MAKE_LIMIT:?}")),
        }
    }
}

fn wanted(card: &InventoryCard, milli: u16, start: u8) -> Result<Wanted, String> {
    Wanted::new(card, milli, start).ok_or_else(|| {
        format!(
            "card {} has no MIG instance of {milli}m at memory slice {start}",
            card.uuid
        )
    })
}

/// Makes and destroys instances, one at a time.
pub(crate) struct Keeper {
    pub calls: ReaderCalls,
    pub snapshots: watch::Receiver<Snapshot>,
    pub inventory: watch::Receiver<Arc<NodeInventory>>,
    pub pods: Arc<Pods>,
    asks: mpsc::Receiver<Ask>,
    own: watch::Sender<OwnInstances>,
    file: OwnFile,
    /// The times since when instances of the agent are unused, or gone.
    since: BTreeMap<OwnInstance, Instant>,
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
    ) -> (Self, Instances) {
        let (asking, asks) = mpsc::channel(MAX_WAITING_CONTAINERS);
        let file = OwnFile(file);
        let own = watch::Sender::new(Arc::new(file.read()));
        let keeper = Self {
            calls,
            snapshots,
            inventory,
            pods,
            asks,
            own,
            file,
            since: BTreeMap::new(),
            linger: UNUSED_LINGER,
        };
        let instances = Instances { asks: asking };
        (keeper, instances)
    }

    /// Returns the instances that the agent has made; all others are the administrator's.
    pub fn own(&self) -> watch::Receiver<OwnInstances> {
        self.own.subscribe()
    }

    /// Runs until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut tick = interval(TIDY_INTERVAL.min(self.linger));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let work = async {
            loop {
                tokio::select! {
                    ask = self.asks.recv() => {
                        let Some(ask) = ask else { return };
                        let made = self.make(&ask.wanted).await;
                        _ = ask.answer.send(made);
                    }
                    _ = tick.tick() => self.tidy().await,
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = stop.cancelled() => {}
        }
    }

    async fn make(&mut self, new: &Wanted) -> Result<String, String> {
        let reading = self.reading();
        let of = new.instance.clone();
        let instances = reading.as_deref().and_then(|r| instances(r, &of.card));
        let instances = instances.unwrap_or_default();
        let own = Arc::clone(&self.own.borrow());
        for going in plan::in_the_way(new, instances, &own, &self.wanted())? {
            let other = OwnInstance::of(&of.card, going);
            self.destroy(other, going).await?;
        }
        // The instance is listed before it is made, since one that is not listed counts as the
        // administrator's.
        if instances
            .iter()
            .all(|one| OwnInstance::of(&of.card, one) != of)
        {
            self.change_own(|own| own.insert(of.clone()))?;
        }
        self.since.remove(&of);
        let create = Action::Create(MigCreate {
            card: of.card.clone(),
            profile: of.profile.clone(),
            start: of.start,
        });
        match self.calls.ask(create).await? {
            Outcome::Instance(made) => {
                tracing::info!(
                    card = of.card,
                    profile = of.profile,
                    start = of.start,
                    "MIG instance"
                );
                Ok(made.uuid)
            }
            Outcome::Error(why) => Err(why),
            Outcome::Destroyed(_) => Err("the reader of GPUs gave a wrong answer".to_owned()),
        }
    }

    async fn destroy(&mut self, of: OwnInstance, instance: &MigInstance) -> Result<(), String> {
        let destroy = Action::Destroy(MigDestroy {
            card: of.card.clone(),
            profile: of.profile.clone(),
            start: of.start,
            gpu_instance: instance.gpu_instance,
        });
        match self.calls.ask(destroy).await? {
            Outcome::Error(why) => Err(why),
            _ => {
                let OwnInstance {
                    card,
                    profile,
                    start,
                } = of;
                tracing::info!(card, profile, start, "MIG instance destroyed");
                Ok(())
            }
        }
    }

    /// Destroys the agent's instances that have been unused for a while, and forgets those that
    /// have been gone for a while.
    async fn tidy(&mut self) {
        let own = Arc::clone(&self.own.borrow());
        let Some(reading) = self.reading().filter(|_| !own.is_empty()) else {
            return;
        };
        if !self.pods.wait_synced(Instant::now()).await {
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
            if let Err(why) = self.destroy(of, &instance).await {
                tracing::debug!(why, "a MIG instance stays");
            }
        }
        let (linger, since) = (self.linger, &self.since);
        let is_gone = |of: &OwnInstance| {
            gone.contains(of) && since.get(of).is_some_and(|since| since.elapsed() >= linger)
        };
        let old: Vec<OwnInstance> = own.iter().filter(|of| is_gone(of)).cloned().collect();
        if !old.is_empty()
            && let Err(error) = self.change_own(|own| own.retain(|of| !old.contains(of)))
        {
            tracing::warn!(error, "MIG instances that are gone stay listed");
        }
        for of in gone {
            self.since.entry(of).or_insert_with(Instant::now);
        }
    }

    fn lingers(&mut self, of: &OwnInstance) -> bool {
        let since = self.since.entry(of.clone()).or_insert_with(Instant::now);
        since.elapsed() < self.linger
    }

    fn wanted(&self) -> Vec<Wanted> {
        let pods = self.pods.all();
        plan::wanted(pods.iter().map(|pod| &**pod), &self.inventory.borrow())
    }

    /// Returns the last reading; `None` while the reader sends no readings.
    fn reading(&self) -> Option<Arc<Reading>> {
        let snapshot = self.snapshots.borrow();
        let reads = snapshot.state == ReaderState::Reading;
        snapshot.reading.clone().filter(|_| reads)
    }

    fn change_own<T>(
        &self,
        change: impl FnOnce(&mut std::collections::BTreeSet<OwnInstance>) -> T,
    ) -> Result<T, String> {
        let mut own = (**self.own.borrow()).clone();
        let value = change(&mut own);
        self.file.write(&own)?;
        self.own.send_replace(Arc::new(own));
        Ok(value)
    }
}

fn instances<'a>(reading: &'a Reading, card: &str) -> Option<&'a [MigInstance]> {
    let mut cards = reading.cards.iter();
    cards.find(|known| known.uuid == card)?.mig.as_deref()
}
