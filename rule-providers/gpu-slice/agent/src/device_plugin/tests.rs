mod fake_kubelet;

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use futures::{FutureExt, future::join_all};
use serde_json::{Value, json};
use tautline_gpu_placement::node_inventory::{InventoryCard, NodeInventory};
use tempfile::TempDir;
use tokio::{
    sync::watch,
    time::{self, Instant},
};

use self::fake_kubelet::FakeKubelet;
use super::{DevicePlugin, Give, Refusal, allocations::Reader, start::Starter};
use crate::{
    cdi::{Edits, Mount, OwnSpecs},
    metrics::Metrics,
    pods::PodRef,
};

const MILLI: &str = "tautline.io/gpu-milli";
const MEMORY: &str = "tautline.io/gpu-memory";
const POLL: Duration = Duration::from_millis(20);

/// Gives every container a card of its name, except those named `refused`.
struct Giver;

#[tonic::async_trait]
impl Give for Giver {
    async fn give(&self, pod: &PodRef, container: &str) -> Result<Edits, Refusal> {
        if container == "refused" {
            return Err(Refusal {
                reason: "NoRecord",
                text: format!("container {container} of pod {pod} gets no cards"),
            });
        }
        let card = format!("{pod}/{container}");
        Ok(Edits {
            env: [("NVIDIA_VISIBLE_DEVICES".to_owned(), card.clone())].into(),
            mounts: vec![Mount {
                container_path: "/card".to_owned(),
                host_path: card,
                options: Vec::new(),
            }],
            ..Edits::default()
        })
    }
}

/// The edits in the spec of a container with all that the giver gives, or with the variables only.
fn edits(pod: &str, container: &str, whole: bool) -> Value {
    let card = format!("with UID uid-{pod}/{container}");
    let mut edits = json!({"env": [format!("NVIDIA_VISIBLE_DEVICES={card}")]});
    if whole {
        edits["mounts"] = json!([{"hostPath": card, "containerPath": "/card"}]);
    }
    edits
}

struct Scene {
    dir: TempDir,
    kubelet: FakeKubelet,
    inventory: watch::Sender<Arc<NodeInventory>>,
}

impl Scene {
    fn new(cards: &[Option<&str>]) -> Self {
        let dir = TempDir::new().unwrap();
        let kubelet = FakeKubelet::start(dir.path(), Arc::default());
        let (inventory, inventories) = watch::channel(Arc::new(node(cards)));
        let plugin = DevicePlugin {
            kubelet_dir: dir.path().to_owned(),
            inventory: inventories,
            giver: Arc::new(Giver),
            specs: specs(dir.path()),
            metrics: Metrics::default(),
        };
        tokio::spawn(plugin.run(POLL));
        Self {
            dir,
            kubelet,
            inventory,
        }
    }

    async fn counts(&self, milli: (usize, usize), memory: (usize, usize)) {
        for (resource, (healthy, unhealthy)) in [(MILLI, milli), (MEMORY, memory)] {
            eventually(resource, || {
                let plugin = self.kubelet.plugin(resource);
                let count = |health| plugin.as_ref().and_then(|p| p.count(health));
                let now = (count("Healthy"), count("Unhealthy"));
                (now != (Some(healthy), Some(unhealthy))).then(|| format!("{now:?}"))
            })
            .await;
        }
    }

    fn spec(&self, name: &str) -> Option<Value> {
        let token = name.strip_prefix("tautline.io/gpu=").unwrap();
        let file = format!("cdi/tautline.io-gpu-{token}.json");
        let text = std::fs::read(self.dir.path().join(file)).ok()?;
        let spec: Value = serde_json::from_slice(&text).unwrap();
        Some(spec["devices"][0]["containerEdits"].clone())
    }

    fn specs(&self) -> usize {
        let files = std::fs::read_dir(self.dir.path().join("cdi"));
        files.map_or(0, Iterator::count)
    }
}

fn specs(dir: &Path) -> OwnSpecs {
    OwnSpecs::new(dir.join("cdi"))
}

fn starter(dir: &Path) -> Starter {
    Starter {
        allocations: Reader::new(dir),
        giver: Arc::new(Giver),
        specs: specs(dir),
        metrics: Metrics::default(),
    }
}

/// Waits until `fault` is `None`.
async fn eventually(what: &str, mut fault: impl FnMut() -> Option<String>) {
    let end = Instant::now() + Duration::from_secs(30);
    while let Some(state) = fault() {
        assert!(Instant::now() < end, "{what}: {state}");
        time::sleep(POLL).await;
    }
}

fn node(cards: &[Option<&str>]) -> NodeInventory {
    let card = |fault: &Option<&str>| InventoryCard {
        memory_bytes: 80 << 30,
        fault: fault.map(str::to_owned),
        ..InventoryCard::default()
    };
    NodeInventory {
        cards: cards.iter().map(card).collect(),
        ..NodeInventory::default()
    }
}

#[tokio::test]
async fn container_gets_its_cards_by_one_of_two_specs() {
    let scene = Scene::new(&[None, None]);
    scene.counts((2000, 0), (160, 0)).await;
    assert!(scene.kubelet.plugin(MILLI).unwrap().pre_start);
    let wants = [(MILLI, 250), (MEMORY, 20)];
    scene.kubelet.admit("a", "main", false, &wants).await;
    let started = scene.kubelet.start_container("a", "main").await.unwrap();

    assert_eq!(started[MILLI].envs["NVIDIA_VISIBLE_DEVICES"], "void");
    let whole = scene.spec(&started[MILLI].cdi_devices[0].name).unwrap();
    assert_eq!(whole, edits("a", "main", true));
    let same = scene.spec(&started[MEMORY].cdi_devices[0].name).unwrap();
    assert_eq!(same, edits("a", "main", false));

    scene
        .kubelet
        .admit("b", "main", false, &[(MEMORY, 5)])
        .await;
    let started = scene.kubelet.start_container("b", "main").await.unwrap();
    let whole = scene.spec(&started[MEMORY].cdi_devices[0].name).unwrap();
    assert_eq!(whole, edits("b", "main", true));
}

#[tokio::test]
async fn many_containers_start_at_once() {
    let scene = Scene::new(&[None; 10]);
    scene.counts((10_000, 0), (800, 0)).await;
    let names: Vec<String> = (0..40).map(|n| format!("p{n}")).collect();
    for name in &names {
        scene
            .kubelet
            .admit(name, "main", false, &[(MILLI, 250)])
            .await;
    }
    let starts = names
        .iter()
        .map(|name| scene.kubelet.start_container(name, "main"));
    for (name, started) in names.iter().zip(join_all(starts).await) {
        let spec = scene.spec(&started.unwrap()[MILLI].cdi_devices[0].name);
        assert_eq!(spec, Some(edits(name, "main", true)));
    }
}

#[tokio::test]
async fn init_container_gets_its_own_cards() {
    let scene = Scene::new(&[None]);
    scene.counts((1000, 0), (80, 0)).await;
    scene
        .kubelet
        .admit("a", "setup", true, &[(MILLI, 500)])
        .await;
    scene
        .kubelet
        .admit("a", "main", false, &[(MILLI, 250)])
        .await;
    for container in ["setup", "main"] {
        let started = scene.kubelet.start_container("a", container).await.unwrap();
        let spec = scene.spec(&started[MILLI].cdi_devices[0].name);
        assert_eq!(spec, Some(edits("a", container, true)));
    }
    // The kubelet does not say which of two containers with equal IDs starts.
    scene
        .kubelet
        .admit("b", "setup", true, &[(MILLI, 100)])
        .await;
    scene
        .kubelet
        .admit("b", "main", false, &[(MILLI, 100)])
        .await;
    let refused = scene
        .kubelet
        .start_container("b", "main")
        .await
        .unwrap_err();
    assert!(
        refused
            .message()
            .starts_with("containers main and setup of pod with UID uid-b get different")
    );
}

#[tokio::test]
async fn refusal_reaches_the_kubelet() {
    let scene = Scene::new(&[None]);
    scene.counts((1000, 0), (80, 0)).await;
    scene
        .kubelet
        .admit("a", "refused", false, &[(MILLI, 500)])
        .await;
    let refused = scene
        .kubelet
        .start_container("a", "refused")
        .await
        .unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    assert_eq!(
        refused.message(),
        "container refused of pod with UID uid-a gets no cards"
    );
    assert_eq!(scene.specs(), 0);
}

#[tokio::test]
async fn new_holder_of_ids_waits_for_its_own_spec() {
    let scene = Scene::new(&[None]);
    scene.counts((1000, 0), (80, 0)).await;
    let all = [(MILLI, 1000)];
    scene.kubelet.admit("a", "main", false, &all).await;
    let started = scene.kubelet.start_container("a", "main").await.unwrap();
    let name = &started[MILLI].cdi_devices[0].name;
    assert!(scene.spec(name).is_some());
    scene.kubelet.end("a");
    scene.kubelet.admit("b", "main", false, &all).await;
    assert_eq!(scene.spec(name), None);
    let started = scene.kubelet.start_container("b", "main").await.unwrap();
    assert_eq!(&started[MILLI].cdi_devices[0].name, name);
    assert_eq!(scene.spec(name), Some(edits("b", "main", true)));
}

#[tokio::test]
async fn kubelet_restarts() {
    let mut scene = Scene::new(&[None]);
    scene.counts((1000, 0), (80, 0)).await;
    scene
        .kubelet
        .admit("a", "main", false, &[(MILLI, 100)])
        .await;
    let state = Arc::clone(&scene.kubelet.state);
    scene.kubelet = FakeKubelet::start(scene.dir.path(), state);
    scene.counts((1000, 0), (80, 0)).await;
    scene.kubelet.start_container("a", "main").await.unwrap();
    // Somebody cleans the folder up.
    let socket = scene
        .dir
        .path()
        .join("device-plugins/tautline-gpu-milli.sock");
    std::fs::remove_file(&socket).unwrap();
    eventually("the socket", || {
        (!socket.exists()).then(|| "gone".to_owned())
    })
    .await;
    scene.counts((1000, 0), (80, 0)).await;
}

#[tokio::test]
async fn broken_card_takes_free_ids() {
    let scene = Scene::new(&[None, None]);
    scene.counts((2000, 0), (160, 0)).await;
    scene
        .kubelet
        .admit("a", "main", false, &[(MILLI, 700)])
        .await;
    scene
        .inventory
        .send(Arc::new(node(&[Some("Xid79"), None])))
        .unwrap();
    scene.counts((1000, 1000), (80, 80)).await;
    let devices = scene.kubelet.plugin(MILLI).unwrap().devices.unwrap();
    let broken = devices.into_iter().filter(|d| d.health != "Healthy");
    let broken: BTreeSet<String> = broken.map(|d| d.id).collect();
    assert!(broken.is_disjoint(&scene.kubelet.held(MILLI)));
    scene.inventory.send(Arc::new(node(&[None, None]))).unwrap();
    scene.counts((2000, 0), (160, 0)).await;
}

#[tokio::test]
async fn resources_are_withdrawn_without_cards() {
    let scene = Scene::new(&[None]);
    scene.counts((1000, 0), (80, 0)).await;
    scene.inventory.send(Arc::default()).unwrap();
    for resource in [MILLI, MEMORY] {
        eventually("withdrawn", || {
            let plugin = scene.kubelet.plugin(resource)?;
            let listed = plugin.devices.as_ref().map(Vec::len);
            listed.map(|count| format!("{count} devices"))
        })
        .await;
    }
    scene.inventory.send(Arc::new(node(&[None]))).unwrap();
    scene.counts((1000, 0), (80, 0)).await;
}

#[tokio::test]
async fn sweep_keeps_what_pods_hold() {
    let scene = Scene::new(&[None]);
    scene.counts((1000, 0), (80, 0)).await;
    scene
        .kubelet
        .admit("a", "main", false, &[(MILLI, 100)])
        .await;
    let started = scene.kubelet.start_container("a", "main").await.unwrap();
    let starter = starter(scene.dir.path());
    starter.specs.write("old", Edits::default()).unwrap();
    starter.sweep(Duration::ZERO).await;
    assert!(scene.spec(&started[MILLI].cdi_devices[0].name).is_some());
    assert_eq!(scene.specs(), 1);
}

#[tokio::test]
async fn without_specs_the_kubelet_is_not_asked() {
    let dir = TempDir::new().unwrap();
    // An answer would not come at once.
    let starter = starter(dir.path());
    assert!(starter.sweep(Duration::ZERO).now_or_never().is_some());
}
