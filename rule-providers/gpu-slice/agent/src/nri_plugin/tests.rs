//! Containers that the runtime creates, and what they get.

use parking_lot::Mutex;
use tautline_gpu_placement::node_inventory::{InventoryCard, NodeInventory};
use tautline_runtime::events::Events;

use super::*;
use crate::{
    cdi::CardSpecs,
    limits::LimitEdits,
    mig::Instances,
    occupancy::Occupancy,
    pods::{Asks, ContainerEntry, PodEntry, Pods},
};

struct World {
    plugin: NriPlugin,
    pods: Arc<Pods>,
    inventory: watch::Sender<Arc<NodeInventory>>,
    foreign: watch::Sender<bool>,
}

fn world(pods: impl IntoIterator<Item = PodEntry>) -> World {
    let cards = (0..4).map(|index| InventoryCard {
        uuid: format!("GPU-{index}"),
        index,
        memory_bytes: 80 << 30,
        fault: (index == 3).then(|| "Xid79".to_owned()),
        ..InventoryCard::default()
    });
    let inventory = NodeInventory {
        cards: cards.collect(),
        ..NodeInventory::default()
    };
    let (sender, receiver) = watch::channel(Arc::new(inventory));
    let pods = Pods::of(pods);
    let giver = Giver {
        node: "n7".to_owned(),
        pods: Arc::clone(&pods),
        inventory: receiver,
        specs: Arc::new(CardSpecs::new(Vec::new())),
        limits: Box::new(|_| Ok(LimitEdits::default())),
        events: Events::new().0,
        occupancy: Mutex::new(Occupancy::default()),
        instances: Instances::none(),
    };
    let (foreign, is_foreign) = watch::channel(false);
    let plugin = NriPlugin {
        giver: Arc::new(giver),
        foreign: is_foreign,
        exempt: HashSet::from(["gpu-system".to_owned()]),
        attached: AtomicBool::new(false),
        metrics: Metrics::default(),
    };
    World {
        plugin,
        pods,
        inventory: sender,
        foreign,
    }
}

fn entry(uid: &str, record: Option<&str>, milli: u32) -> PodEntry {
    PodEntry {
        uid: uid.into(),
        api_uid: uid.into(),
        namespace: "shop".into(),
        name: uid.into(),
        record: record.map(Arc::from),
        containers: [
            ContainerEntry {
                name: "app".into(),
                asks: Asks { milli, gib: 0 },
                ..ContainerEntry::default()
            },
            ContainerEntry {
                name: "log".into(),
                ..ContainerEntry::default()
            },
        ]
        .into(),
        ..PodEntry::default()
    }
}

fn sandbox(uid: &str) -> PodSandbox {
    PodSandbox {
        id: format!("s-{uid}"),
        uid: uid.to_owned(),
        name: uid.to_owned(),
        namespace: "shop".to_owned(),
    }
}

fn container(uid: &str, name: &str) -> Container {
    Container {
        id: format!("c-{uid}-{name}"),
        pod_sandbox_id: format!("s-{uid}"),
        name: name.to_owned(),
        env: vec!["NVIDIA_VISIBLE_DEVICES=all".to_owned()],
        ..Container::default()
    }
}

impl World {
    async fn create(&self, uid: &str, name: &str) -> Result<ContainerAdjustment, String> {
        let request = Request {
            pod: sandbox(uid),
            container: container(uid, name),
            deadline: Instant::now() + Duration::from_secs(60),
        };
        self.plugin.create_container(request).await
    }

    /// The cards that the container holds from now on, the changed variable, or the refusal.
    async fn held(&self, uid: &str, name: &str) -> String {
        match self.create(uid, name).await {
            Ok(adjust) => describe(adjust),
            Err(error) => error,
        }
    }
}

fn describe(adjust: ContainerAdjustment) -> String {
    let held = adjust.annotations.get(HELD_ANNOTATION).cloned();
    let visible = adjust.env.into_iter().find(|e| e.key == VISIBLE);
    held.or(visible.map(|e| e.value))
        .unwrap_or("untouched".to_owned())
}

#[tokio::test]
async fn containers_hold_the_cards_of_the_record_and_others_see_none() {
    let world = world([entry("a", Some("GPU-1:1000,2:500"), 1500)]);
    let adjust = world.create("a", "app").await.unwrap();
    assert_eq!(adjust.annotations[HELD_ANNOTATION], "GPU-1:1000,GPU-2:500");
    // CDI sets it.
    assert!(adjust.env.is_empty());
    assert_eq!(world.held("a", "log").await, "void");
}

#[test]
fn old_cuda_images_see_all_cards_unless_told_otherwise() {
    let sees = |env: &[&str]| {
        let env: Vec<String> = env.iter().map(|e| (*e).to_owned()).collect();
        sees_cards(&env)
    };
    assert!(sees(&["CUDA_VERSION=12.2.0"]));
    assert!(sees(&["NVIDIA_VISIBLE_DEVICES=0"]));
    assert!(sees(&[
        "NVIDIA_VISIBLE_DEVICES=void",
        "NVIDIA_VISIBLE_DEVICES=all"
    ]));
    assert!(!sees(&[
        "CUDA_VERSION=12.2.0",
        "NVIDIA_VISIBLE_DEVICES=void"
    ]));
    assert!(!sees(&["PATH=/bin", "NVIDIA_VISIBLE_DEVICES="]));
    assert!(!sees(&["PATH=/bin"]));
}

#[tokio::test]
async fn a_variable_that_comes_twice_is_refused() {
    let world = world([entry("a", Some("GPU-1:250"), 250)]);
    let request = |name: &str| {
        let mut twice = container("a", name);
        let void = "NVIDIA_VISIBLE_DEVICES=void".to_owned();
        twice.env.insert(0, void);
        Request {
            pod: sandbox("a"),
            container: twice,
            deadline: Instant::now() + Duration::from_secs(60),
        }
    };
    // The second is Allocate's.
    let given = world.plugin.create_container(request("app")).await;
    assert_eq!(describe(given.unwrap()), "GPU-1:250");
    let error = world.plugin.create_container(request("log")).await;
    let error = error.unwrap_err();
    assert!(error.contains("NVIDIA_VISIBLE_DEVICES twice"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn refusals_name_pod_container_card_node_and_mend() {
    let world = world([
        entry("none", None, 250),
        entry("far", Some("GPU-9:250"), 250),
        entry("ill", Some("GPU-3:250"), 250),
    ]);
    for (uid, text) in [
        ("none", "the pod has no annotation tautline.io/gpu-devices"),
        (
            "far",
            "names card GPU-9, which the node does not have; delete the pod",
        ),
        ("ill", "card GPU-3 is unhealthy: Xid79; repair the card"),
    ] {
        let begun = Instant::now();
        let error = world.create(uid, "app").await.unwrap_err();
        let who = format!("container app of pod shop/{uid}");
        assert!(error.contains(&who) && error.contains("node n7"), "{error}");
        assert!(error.contains(text), "{error}");
        assert!(begun.elapsed() <= WAIT, "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_comes_late_is_awaited() {
    let world = world([entry("a", None, 250)]);
    let late = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        world.pods.put(entry("a", Some("GPU-2:250"), 250));
    };
    let (held, ()) = tokio::join!(world.held("a", "app"), late);
    assert_eq!(held, "GPU-2:250");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_late_is_awaited_and_sees_no_card_if_it_does_not_come() {
    let world = world([]);
    let late = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        world.pods.put(entry("a", Some("GPU-2:250"), 250));
    };
    // It asks, and its image says nothing of cards.
    let request = Request {
        pod: sandbox("a"),
        container: Container {
            env: Vec::new(),
            ..container("a", "app")
        },
        deadline: Instant::now() + Duration::from_secs(60),
    };
    let (given, ()) = tokio::join!(world.plugin.create_container(request), late);
    assert_eq!(describe(given.unwrap()), "GPU-2:250");
    let begun = Instant::now();
    assert_eq!(world.held("unseen", "app").await, "void");
    assert!(begun.elapsed() <= WAIT, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_old_sandbox_does_not_free_what_a_new_one_holds() {
    let world = world([
        entry("a", Some("GPU-0:600"), 600),
        entry("b", Some("GPU-0:600"), 600),
    ]);
    assert_eq!(world.held("a", "app").await, "GPU-0:600");
    let old = PodSandbox {
        id: "s-old".to_owned(),
        ..sandbox("a")
    };
    world.plugin.pod_ended(old);
    assert!(world.held("b", "app").await.contains("shop/a still run"));
}

#[tokio::test(start_paused = true)]
async fn a_card_is_not_given_while_others_run_on_it() {
    let world = world([
        entry("a", Some("GPU-0:600"), 600),
        entry("b", Some("GPU-0:600"), 600),
        entry("c", Some("GPU-0:400"), 400),
    ]);
    assert_eq!(world.held("a", "app").await, "GPU-0:600");
    let error = world.held("b", "app").await;
    let part = "card GPU-0 has 400 of 1000 thousandths free, as containers of shop/a still run";
    assert!(error.contains(part), "{error}");
    assert_eq!(world.held("c", "app").await, "GPU-0:400");
    // A container that starts again holds its card already.
    assert_eq!(world.held("a", "app").await, "GPU-0:600");
    let plugin = &world.plugin;
    plugin.container_ended(sandbox("a"), container("a", "app"));
    plugin.pod_ended(sandbox("c"));
    assert_eq!(world.held("b", "app").await, "GPU-0:600");
}

#[tokio::test(start_paused = true)]
async fn synchronize_knows_running_containers() {
    let world = world([
        entry("a", Some("GPU-0:600"), 600),
        entry("b", Some("GPU-0:600"), 600),
        entry("c", Some("GPU-1:600"), 600),
        entry("d", Some("GPU-2:600"), 600),
    ]);
    let mut gone = container("gone", "app");
    gone.annotations
        .insert(HELD_ANNOTATION.to_owned(), "GPU-1:1000".to_owned());
    let mut stopped = container("a", "app");
    stopped.set_state(ContainerState::ContainerStopped);
    let pods = ["a", "b", "gone"].map(sandbox).to_vec();
    // It asks for nothing, and its pod's annotations were copied onto it.
    let mut forged = container("a", "log");
    forged
        .annotations
        .insert(HELD_ANNOTATION.to_owned(), "GPU-2:1000".to_owned());
    let running = vec![container("a", "app"), forged, gone.clone()];
    world.plugin.synchronize(pods.clone(), running);
    assert!(world.plugin.attached.load(Ordering::Relaxed));
    assert!(world.held("b", "app").await.contains("shop/a still run"));
    assert!(world.held("c", "app").await.contains("shop/gone still run"));
    assert_eq!(world.held("d", "app").await, "GPU-2:600");
    world.plugin.synchronize(pods, vec![stopped]);
    assert_eq!(world.held("b", "app").await, "GPU-0:600");
    assert_eq!(world.held("c", "app").await, "GPU-1:600");
}

#[tokio::test(start_paused = true)]
async fn exempt_namespaces_and_foreign_cards_keep_the_variable() {
    let world = world([entry("a", None, 250)]);
    let request = |namespace: &str| Request {
        pod: PodSandbox {
            namespace: namespace.to_owned(),
            ..sandbox("dcgm")
        },
        container: container("dcgm", "exporter"),
        deadline: Instant::now() + Duration::from_secs(1),
    };
    let exempt = world.plugin.create_container(request("gpu-system")).await;
    assert_eq!(exempt, Ok(ContainerAdjustment::default()));
    // Cards that are not known yet are kept back.
    world.inventory.send_replace(Arc::default());
    assert_eq!(world.held("dcgm", "exporter").await, "void");
    world.foreign.send_replace(true);
    let idle = world.plugin.create_container(request("shop")).await;
    assert_eq!(idle, Ok(ContainerAdjustment::default()));
}

#[tokio::test(start_paused = true)]
async fn what_the_runtime_told_is_forgotten_once_it_is_long_detached() {
    let world = world([entry("a", Some("GPU-0:600"), 600)]);
    assert_eq!(world.held("a", "app").await, "GPU-0:600");
    let giver = Arc::clone(&world.plugin.giver);
    let held = || giver.occupancy.lock().occupants().count();
    let plugin = Arc::new(world.plugin);
    let stop = CancellationToken::new();
    let steps = async {
        tokio::time::sleep(FORGET / 2).await;
        assert_eq!(held(), 1);
        tokio::time::sleep(FORGET * 2).await;
        assert_eq!(held(), 0);
        stop.cancel();
    };
    let socket = Path::new("/nonexistent/nri.sock");
    tokio::join!(run(plugin, socket, stop.clone()), steps);
}

#[tokio::test]
async fn run_connects_again_and_stops() {
    let world = world([]);
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("nri.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let stop = CancellationToken::new();
    let plugin = Arc::new(world.plugin);
    let (running, path) = (stop.clone(), socket.clone());
    let task = tokio::spawn(async move { run(plugin, &path, running).await });
    for _ in 0..2 {
        let accepted = tokio::time::timeout(Duration::from_secs(30), listener.accept()).await;
        drop(accepted.unwrap().unwrap());
    }
    stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(30), task).await;
    ended.unwrap().unwrap();
}
