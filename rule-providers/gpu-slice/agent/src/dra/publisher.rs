//! Keeps the node's ResourceSlices as its cards are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use kube_runtime::{
    WatchStreamExt,
    watcher::{Config, watcher},
};
use serde_json::{Value, json};
use tautline_gpu_placement::{device_annotation, node_inventory::NodeInventory, shape::CARD_MILLI};
use tautline_runtime::{
    api_call::{ApiCallError, within},
    backoff::WatchBackoff,
    error_text::error_text,
    watch_changes::{Change, Changes},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    DRIVER,
    slices::{Content, NodeCards, slices},
};
use crate::{
    assignment::find_card,
    metrics::Metrics,
    node::{MANAGER, NodeFacts},
    pods::Pods,
    reader::{ReaderState, Snapshot},
};

/// The longest time that a call to the API server may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// The interval at which the cards are compared with the slices, and the longest wait after a
/// failed write; failures double the wait in between.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Writes the slices of this node.
pub(crate) struct Publisher {
    pub client: Client,
    pub node: String,
    /// The cards to publish: none while another plugin owns the cards.
    pub given: watch::Receiver<Arc<NodeInventory>>,
    pub snapshots: watch::Receiver<Snapshot>,
    pub facts: watch::Receiver<Option<NodeFacts>>,
    pub pods: Arc<Pods>,
    /// The time after which the pods of a faulty card are evicted; `None` leaves them.
    pub evict_after: Option<Duration>,
    pub metrics: Metrics,
}

/// The version and the generation that a slice has in the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Live {
    version: String,
    generation: i64,
}

impl Live {
    fn read(slice: &ResourceSlice) -> (String, Self) {
        let live = Self {
            version: slice.resource_version().unwrap_or_default(),
            generation: slice.spec.pool.generation,
        };
        (slice.name_any(), live)
    }
}

/// A slice as it was written last: as the API server has it then, its content, and the number of
/// slices.
type Written = (Live, Content, usize);

/// The slices to write, by name, and those to delete.
#[derive(Debug, Default, PartialEq)]
struct Plan {
    generation: i64,
    count: usize,
    write: Vec<(String, Content)>,
    delete: Vec<String>,
}

impl Publisher {
    /// Runs until it is dropped. The slices then stay: the kubelet deletes those of a driver that
    /// does not come back.
    pub async fn run(self) {
        let api: Api<ResourceSlice> = Api::all(self.client.clone());
        let own = format!("spec.driver={DRIVER},spec.nodeName={}", self.node);
        let events = watcher(api.clone(), Config::default().fields(&own));
        let mut events = std::pin::pin!(events.backoff(WatchBackoff::default()));
        let (mut changes, mut live) = (Changes::default(), None);
        let (mut written, mut faults) = (BTreeMap::new(), BTreeMap::new());
        let mut wait = WAITS.0;
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => {
                        let change = changes.next(event, |slice| Live::read(&slice));
                        apply(&mut live, change);
                        continue;
                    }
                    Some(Err(error)) => {
                        let error = error_text(&error);
                        tracing::warn!(error, "the watch of ResourceSlices restarts");
                        continue;
                    }
                    None => return,
                },
                () = sleep(wait) => {}
            }
            let Some((live, (owner, contents))) = live.as_mut().zip(self.contents(&mut faults))
            else {
                continue;
            };
            let plan = plan(&self.node, live, &written, contents);
            let done = self.carry_out(&api, plan, &owner, live, &mut written).await;
            wait = match done {
                Ok(()) => WAITS.0,
                Err(error) => {
                    tracing::warn!(node = self.node, %error, "the node's ResourceSlices are not written");
                    self.metrics.node_failures.inc();
                    (wait * 2).min(WAITS.1)
                }
            };
        }
    }

    /// Returns the UID of the node and the contents of its slices; `None` while the node or its
    /// cards are not known. `faults` has the times since when cards have a fault.
    fn contents(&self, faults: &mut BTreeMap<String, Instant>) -> Option<(String, Vec<Content>)> {
        let uid = self.facts.borrow().as_ref()?.uid.clone();
        let snapshot = self.snapshots.borrow().clone();
        let given = Arc::clone(&self.given.borrow());
        let Some(reading) = snapshot.reading.as_deref() else {
            let none = matches!(snapshot.state, ReaderState::NoDriver(_));
            return none.then(|| (uid, Vec::new()));
        };
        let faulty = given.cards.iter().filter(|card| card.fault.is_some());
        let faulty: BTreeSet<&String> = faulty.map(|card| &card.uuid).collect();
        faults.retain(|card, _| faulty.contains(card));
        for card in faulty {
            faults.entry(card.clone()).or_insert_with(Instant::now);
        }
        let is_old = |since: &Instant| self.evict_after.is_some_and(|t| since.elapsed() >= t);
        let evicted = faults.iter().filter(|(_, since)| is_old(since));
        let cards = NodeCards {
            node: &self.node,
            inventory: &given,
            reading,
            held: self.held(&given),
            evicted: evicted.map(|(card, _)| card.as_str()).collect(),
        };
        Some((uid, slices(&cards)))
    }

    /// Returns the cards that pods hold by their records, as they do where the device plugin gave
    /// out the cards before.
    fn held<'a>(&self, inventory: &'a NodeInventory) -> BTreeSet<&'a str> {
        let mut held = BTreeSet::new();
        for pod in self.pods.all().iter().filter(|pod| !pod.ended) {
            let record = pod.record.as_deref().unwrap_or_default();
            let shares = device_annotation::parse(record, CARD_MILLI).unwrap_or_default();
            let cards = shares.iter().filter_map(|s| find_card(inventory, &s.card));
            held.extend(cards.map(|card| card.uuid.as_str()));
        }
        held
    }

    async fn carry_out(
        &self,
        api: &Api<ResourceSlice>,
        plan: Plan,
        owner: &str,
        live: &mut BTreeMap<String, Live>,
        written: &mut BTreeMap<String, Written>,
    ) -> Result<(), ApiCallError> {
        for (name, content) in plan.write {
            let pool = json!({"name": self.node, "generation": plan.generation,
                "resourceSliceCount": plan.count});
            let object = object(&name, owner, pool, &content);
            let params = PatchParams::apply(MANAGER).force();
            let patch = Patch::Apply(object);
            let slice = within(DEADLINE, api.patch(&name, &params, &patch)).await?;
            let (name, now) = Live::read(&slice);
            live.insert(name.clone(), now.clone());
            written.insert(name, (now, content, plan.count));
        }
        for name in plan.delete {
            let deleted = within(DEADLINE, api.delete(&name, &DeleteParams::default())).await;
            match deleted {
                Err(error) if error.code() != Some(404) => return Err(error),
                _ => _ = live.remove(&name),
            }
            written.remove(&name);
        }
        Ok(())
    }
}

fn apply(live: &mut Option<BTreeMap<String, Live>>, change: Option<Change<(String, Live)>>) {
    match (change, live) {
        (Some(Change::Replaced(all)), live) => *live = Some(all.into_iter().collect()),
        (Some(Change::Applied((name, slice))), Some(live)) => _ = live.insert(name, slice),
        (Some(Change::Deleted((name, _))), Some(live)) => _ = live.remove(&name),
        _ => {}
    }
}

/// Compares the slices with the contents that they should have. When their number changes, all get
/// a new generation, and kube-scheduler ignores the old ones.
fn plan(
    node: &str,
    live: &BTreeMap<String, Live>,
    written: &BTreeMap<String, Written>,
    contents: Vec<Content>,
) -> Plan {
    let count = contents.len();
    let contents = contents.into_iter().enumerate();
    let wanted: BTreeMap<String, Content> = contents
        .map(|(index, content)| (format!("{node}-{DRIVER}-{index}"), content))
        .collect();
    let newest = live.values().map(|slice| slice.generation).max();
    let keeps = live.keys().eq(wanted.keys())
        && live.values().all(|slice| Some(slice.generation) == newest);
    let generation = match newest {
        Some(newest) if keeps => newest,
        newest => newest.unwrap_or(0) + 1,
    };
    let is_written = |name: &String, content: &Content| match (written.get(name), live.get(name)) {
        (Some((last, of, all)), Some(now)) => {
            of == content && *all == count && now == last && now.generation == generation
        }
        _ => false,
    };
    let delete = live.keys().filter(|name| !wanted.contains_key(*name));
    Plan {
        generation,
        count,
        delete: delete.cloned().collect(),
        write: wanted
            .into_iter()
            .filter(|(name, content)| !is_written(name, content))
            .collect(),
    }
}

/// Returns the slice to write; `owner` is the UID of the node, whose name the pool has.
fn object(name: &str, owner: &str, pool: Value, content: &Content) -> Value {
    let node = pool["name"].clone();
    let mut spec = json!({"driver": DRIVER, "nodeName": node, "pool": pool});
    if content.shared_counters.is_empty() {
        spec["devices"] = json!(content.devices);
    } else {
        spec["sharedCounters"] = json!(content.shared_counters);
    }
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner, "controller": true},
        ]},
        "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(device: &str) -> Content {
        let device = k8s_openapi::api::resource::v1::Device {
            name: device.to_owned(),
            ..Default::default()
        };
        Content {
            devices: vec![device],
            ..Content::default()
        }
    }

    /// Writes the plan as the API server would, and returns it.
    fn write(
        live: &mut BTreeMap<String, Live>,
        written: &mut BTreeMap<String, Written>,
        contents: Vec<Content>,
    ) -> (i64, Vec<String>, Vec<String>) {
        let plan = plan("n1", live, written, contents);
        let names = plan.write.iter().map(|(name, _)| name.clone()).collect();
        for (name, content) in plan.write {
            let slice = Live {
                version: format!("{}", live.len() + written.len() + 100),
                generation: plan.generation,
            };
            live.insert(name.clone(), slice.clone());
            written.insert(name, (slice, content, plan.count));
        }
        for name in &plan.delete {
            live.remove(name);
        }
        (plan.generation, names, plan.delete)
    }

    #[test]
    fn slices_are_written_only_when_something_changed() {
        let (mut live, mut written) = (BTreeMap::new(), BTreeMap::new());
        let name = |index: usize| format!("n1-gpu.tautline.io-{index}");
        let mut next =
            |live: &mut BTreeMap<String, Live>, contents| write(live, &mut written, contents);
        let first = next(&mut live, vec![content("a")]);
        assert_eq!(first, (1, vec![name(0)], vec![]));
        assert_eq!(next(&mut live, vec![content("a")]), (1, vec![], vec![]));
        // One slice changes in place.
        assert_eq!(
            next(&mut live, vec![content("b")]),
            (1, vec![name(0)], vec![])
        );
        // A new number of slices is a new generation of all.
        let two = next(&mut live, vec![content("b"), content("c")]);
        assert_eq!(two, (2, vec![name(0), name(1)], vec![]));
        // Somebody else changes or deletes a slice.
        live.get_mut(&name(0)).unwrap().version = "other".to_owned();
        let mended = next(&mut live, vec![content("b"), content("c")]);
        assert_eq!(mended, (2, vec![name(0)], vec![]));
        live.remove(&name(1));
        let mended = next(&mut live, vec![content("b"), content("c")]);
        assert_eq!(mended, (3, vec![name(0), name(1)], vec![]));
        assert_eq!(next(&mut live, vec![]), (4, vec![], vec![name(0), name(1)]));
        assert_eq!(next(&mut live, vec![]).1.len(), 0);
    }
}
