//! The keeper with a driver that is played: what it makes is in the next reading.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tautline_gpu_placement::{
    containers::AgentRequest,
    device_annotation::{self, CardShare},
    mig::{MigLayout, MigProfile},
};
use tautline_nvml::{Card, MigInstance};
use tautline_runtime::events::Events;
use tokio::task::JoinSet;

use super::*;
use crate::{
    cdi::{CardSpecs, VISIBLE},
    device_plugin::Give,
    dra::{PreparedClaim, PreparedDevice},
    giver::Giver,
    limits::{Mode, Settings},
    pods::{PodEntry, PodRef, entry::ContainerEntry},
    reader::Calls,
};

const CARD: &str = "GPU-a";
/// Time for what must happen; a busy machine is slow.
const DEADLINE: Duration = Duration::from_secs(60);

struct World {
    giver: Arc<Giver>,
    pods: Arc<Pods>,
    instances: Instances,
    driver: Arc<Driver>,
    own: watch::Receiver<OwnInstances>,
    folder: tempfile::TempDir,
    _inventory: watch::Sender<Arc<NodeInventory>>,
    _tasks: JoinSet<()>,
}

/// Instances of the card, and those that processes use by id.
struct Driver {
    instances: Mutex<Vec<MigInstance>>,
    used: Mutex<BTreeSet<u32>>,
    snapshots: watch::Sender<Snapshot>,
}

impl Driver {
    async fn run(self: Arc<Self>, mut calls: Calls) {
        while let Some((action, answer)) = calls.recv().await {
            let outcome = self.act(&action);
            self.read();
            _ = answer.send(outcome);
        }
    }

    fn act(&self, action: &Action) -> Outcome {
        let mut instances = self.instances.lock();
        match action {
            Action::Create(create) => {
                let size = if create.profile == "2g.20gb" { 2 } else { 4 };
                let meets = |one: &&MigInstance| {
                    one.start < create.start + size && create.start < one.start + one.size
                };
                if let Some(there) = instances.iter().find(meets) {
                    return match there.profile == create.profile && there.start == create.start {
                        true => Outcome::Instance(there.clone()),
                        false => Outcome::Error("no room".into()),
                    };
                }
                let id = (1..).find(|id| instances.iter().all(|one| one.gpu_instance != *id));
                let id = id.unwrap();
                instances.push(instance(&create.profile, create.start, size, id));
                Outcome::Instance(instances.last().unwrap().clone())
            }
            Action::Destroy(destroy) => {
                if self.used.lock().contains(&destroy.gpu_instance) {
                    return Outcome::Error("in use by process 41".into());
                }
                instances.retain(|one| one.gpu_instance != destroy.gpu_instance);
                Outcome::Destroyed(destroy.gpu_instance)
            }
        }
    }

    fn read(&self) {
        let card = Card {
            uuid: CARD.into(),
            mig: Some(self.instances.lock().clone()),
            ..Card::default()
        };
        self.snapshots.send_replace(Snapshot {
            reading: Some(Arc::new(Reading {
                cards: vec![card],
                ..Reading::default()
            })),
            state: ReaderState::Reading,
            ..Snapshot::default()
        });
    }

    fn places(&self) -> Vec<(String, u32)> {
        let instances = self.instances.lock();
        let mut all: Vec<_> = instances
            .iter()
            .map(|i| (i.profile.clone(), i.start))
            .collect();
        all.sort();
        all
    }

    async fn until(&self, what: &str, places: &[(&str, u32)]) {
        let wanted: Vec<_> = places.iter().map(|(p, s)| ((*p).to_owned(), *s)).collect();
        let end = Instant::now() + DEADLINE;
        while self.places() != wanted {
            assert!(Instant::now() < end, "{what}: {:?}", self.places());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn instance(profile: &str, start: u32, size: u32, id: u32) -> MigInstance {
    MigInstance {
        uuid: format!("MIG-{id}"),
        profile: profile.into(),
        start,
        size,
        compute: size,
        gpu_instance: id,
    }
}

fn inventory() -> NodeInventory {
    let profile = |name: &str, milli, size, starts: &[u8]| MigProfile {
        name: name.into(),
        milli,
        size,
        compute: size,
        starts: starts.to_vec(),
    };
    let card = |uuid: &str, index, mig| InventoryCard {
        uuid: uuid.into(),
        index,
        memory_bytes: 80 << 30,
        mig,
        ..InventoryCard::default()
    };
    let layout = MigLayout {
        profiles: vec![
            profile("2g.20gb", 250, 2, &[0, 2, 4]),
            profile("4g.40gb", 500, 4, &[0, 4]),
        ],
        taken: Vec::new(),
    };
    NodeInventory {
        cards: vec![card(CARD, 0, Some(layout)), card("GPU-b", 1, None)],
        limits: "mig".into(),
    }
}

fn pod(name: &str, record: &str, milli: i64) -> PodEntry {
    PodEntry {
        uid: name.into(),
        api_uid: name.into(),
        namespace: "shop".into(),
        name: name.into(),
        record: Some(record.into()),
        containers: [ContainerEntry {
            name: "app".into(),
            asks: AgentRequest {
                milli,
                memory_gib: 0,
            },
            ..ContainerEntry::default()
        }]
        .into(),
        ..PodEntry::default()
    }
}

impl World {
    fn new(pods: impl IntoIterator<Item = PodEntry>, there: Vec<MigInstance>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::with(folder, pods, there, Duration::from_millis(30))
    }

    fn with(
        folder: tempfile::TempDir,
        pods: impl IntoIterator<Item = PodEntry>,
        there: Vec<MigInstance>,
        linger: Duration,
    ) -> Self {
        let driver = Arc::new(Driver {
            instances: Mutex::new(there),
            used: Mutex::default(),
            snapshots: watch::Sender::default(),
        });
        driver.read();
        let pods = Pods::of(pods);
        let (sender, inventory) = watch::channel(Arc::new(inventory()));
        let claims = PreparedClaims::read(folder.path().join("claims.json"));
        let claims = Arc::new(claims.unwrap());
        let (calls, called) = ReaderCalls::new();
        let (mut keeper, instances) = Keeper::new(
            folder.path().join("run/mig.json"),
            calls,
            driver.snapshots.subscribe(),
            inventory.clone(),
            Arc::clone(&pods),
            Arc::clone(&claims),
        );
        keeper.linger = linger;
        let own = keeper.own();
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&driver).run(called));
        tasks.spawn(keeper.run());
        let giver = Giver {
            node: "n7".to_owned(),
            pods: Arc::clone(&pods),
            inventory,
            specs: Arc::new(CardSpecs(vec![folder.path().to_owned()])),
            mode: watch::channel(Mode::None).1,
            limits: Settings {
                run_dir: folder.path().to_owned(),
                hami_core: None,
            },
            events: Events::new().0,
            instances: instances.clone(),
            claims,
        };
        Self {
            giver: Arc::new(giver),
            pods,
            instances,
            driver,
            own,
            folder,
            _inventory: sender,
            _tasks: tasks,
        }
    }

    /// What PreStartContainer gives.
    async fn give(&self, pod: &str) -> Result<String, String> {
        let pod = PodRef::Uid(pod.to_owned());
        let given = self.giver.give(&pod, "app").await;
        let edits = given.map_err(|refusal| refusal.text)?;
        assert!(edits.mounts.is_empty() && edits.device_nodes.is_empty());
        assert_eq!(edits.env.len(), 1);
        Ok(edits.env[VISIBLE].clone())
    }
}

#[tokio::test]
async fn a_record_with_a_start_gets_its_instance_and_loses_it_after_the_pod() {
    let world = World::new([pod("a", "GPU-a:250@4", 250)], Vec::new());
    assert_eq!(world.give("a").await.unwrap(), "MIG-1");
    assert_eq!(world.give("a").await.unwrap(), "MIG-1");
    assert_eq!(world.own.borrow().len(), 1);

    let ended = PodEntry {
        ended: true,
        ..pod("a", "GPU-a:250@4", 250)
    };
    world.driver.used.lock().insert(1);
    world.pods.put(ended);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.driver.places(), [("2g.20gb".to_owned(), 4)]);
    world.driver.used.lock().clear();
    world.driver.until("unused", &[]).await;
    let mut own = world.own.clone();
    let forgotten = own.wait_for(|own| own.is_empty());
    timeout(DEADLINE, forgotten).await.unwrap().unwrap();
}

#[tokio::test]
async fn unused_instances_make_room_and_others_do_not() {
    let foreign = vec![instance("2g.20gb", 4, 2, 9)];
    let pods = [pod("a", "GPU-a:250@0", 250), pod("b", "GPU-a:500@0", 500)];
    let folder = tempfile::tempdir().unwrap();
    let world = World::with(folder, pods, foreign, Duration::from_secs(3600));
    world.give("a").await.unwrap();
    let refused = world.give("b").await.unwrap_err();
    assert!(
        refused.contains("is in the way, and is another pod's"),
        "{refused}"
    );
    // A process of a pod that is gone.
    world.driver.used.lock().insert(1);
    world.pods.put(PodEntry {
        ended: true,
        ..pod("a", "GPU-a:250@0", 250)
    });
    let refused = world.give("b").await.unwrap_err();
    assert!(refused.contains("in use by process 41"), "{refused}");
    world.driver.used.lock().clear();
    world.give("b").await.unwrap();
    world
        .driver
        .until("room", &[("2g.20gb", 4), ("4g.40gb", 0)])
        .await;

    world.pods.put(pod("c", "GPU-a:500@4", 500));
    let refused = world.give("c").await.unwrap_err();
    assert!(refused.contains("is the administrator's"), "{refused}");
    // One that is there with the record's profile and start is used, and stays another's.
    world.pods.put(pod("d", "GPU-a:250@4", 250));
    assert_eq!(world.give("d").await.unwrap(), "MIG-9");
    assert_eq!(
        world.own.borrow().iter().filter(|of| of.start == 4).count(),
        0
    );
}

#[tokio::test]
async fn a_restarted_agent_knows_its_instances() {
    let world = World::new([pod("a", "GPU-a:250@0", 250)], Vec::new());
    world.give("a").await.unwrap();
    let there = world.driver.instances.lock().clone();
    let World { folder, _tasks, .. } = world;
    drop(_tasks);
    let mut there = there;
    there.push(instance("2g.20gb", 2, 2, 5));
    let world = World::with(folder, [], there, Duration::from_millis(30));
    // The administrator's stays.
    world
        .driver
        .until("only the agent's goes", &[("2g.20gb", 2)])
        .await;
}

#[tokio::test]
async fn records_that_do_not_suit_the_card_are_refused() {
    let pods = [
        pod("a", "GPU-a:250", 250),
        pod("b", "GPU-b:250", 250),
        pod("c", "GPU-b:1000", 1000),
        pod("d", "GPU-b:250@0", 250),
        pod("e", "GPU-a:250@3", 250),
    ];
    let world = World::new(pods, Vec::new());
    for (name, why) in [
        ("a", "has MIG on, and the record names no slice"),
        ("b", "limits mig cannot hold on a share of it"),
        ("d", "has MIG off, and the record names a slice"),
        ("e", "has no MIG instance of 250m at memory slice 3"),
    ] {
        let refused = world.give(name).await.unwrap_err();
        assert!(refused.contains(why), "{name}: {refused}");
    }
    assert_eq!(world.give("c").await.unwrap(), "GPU-b");
    assert!(world.driver.places().is_empty());
    let card = &inventory().cards[0];
    assert!(world.instances.make(card, 125, 0).await.is_err());
}

#[tokio::test]
async fn card_of_a_claim_is_given_to_nobody_else() {
    let world = World::new([pod("c", "GPU-b:1000", 1000)], Vec::new());
    let share = |milli| CardShare {
        card: "GPU-b".into(),
        milli,
        start: None,
    };
    let claim = |name: &str, milli| PreparedClaim {
        namespace: "vision".to_owned(),
        name: name.to_owned(),
        devices: vec![PreparedDevice {
            share: device_annotation::format(&[share(milli)]),
            ..PreparedDevice::default()
        }],
    };
    let held = &world.giver.claims;
    held.add("first", claim("first", 800)).unwrap();
    held.add("second", claim("second", 500)).unwrap();
    let card = inventory().cards[1].clone();
    let occupied = |uid, is_admin| {
        let (giver, given) = (&world.giver, vec![((card.clone(), 1000), share(1000))]);
        async move {
            let edits = giver.edits_of_claim(uid, &given, is_admin).await;
            edits.map_err(|why| (why.code, why.text))
        }
    };
    let (of_claim, of_record) = tokio::join!(occupied("third", false), world.give("c"));
    let (code, text) = of_claim.unwrap_err();
    assert_eq!(code, "OccupiedCard");
    assert!(
        text.contains("claim vision/first, claim vision/second"),
        "{text}"
    );
    assert!(of_record.unwrap_err().contains("claim vision/first"));
    occupied("third", true).await.unwrap();
    held.remove("second").unwrap();
    occupied("first", false).await.unwrap();
}
