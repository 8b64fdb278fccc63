use tautline_core::{
    model::Offer,
    remote::{RemotePod, RemoteTarget},
    selector::Selector,
};
use tokio::time::{advance, sleep};

use super::{secrets::Settings, *};

fn offer(namespace: &str, created_unix: i64, clusters: &[String]) -> Offer {
    let target = |cluster: &String| RemoteTarget {
        name: cluster.as_str().into(),
        cluster: cluster.as_str().into(),
        selector: Selector::default(),
    };
    Offer {
        namespace: namespace.into(),
        name: "web".into(),
        created_unix,
        remote_targets: clusters.iter().map(target).collect(),
        ..Offer::default()
    }
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i:03}")).collect()
}

fn scope(cluster: &str, namespace: &str) -> Scope {
    Scope {
        cluster: cluster.into(),
        namespace: namespace.into(),
    }
}

fn settings(kubeconfig: &str, grace: u64) -> Settings {
    Settings {
        access: Arc::new(Access {
            kubeconfig: kubeconfig.into(),
            node_port: 10_250,
        }),
        grace: Duration::from_secs(grace),
    }
}

struct World {
    store: ClusterStore,
    secrets: watch::Sender<Option<Clusters>>,
    readiness: Readiness,
    watcher: OtherClusters,
}

impl World {
    fn new() -> Self {
        let (store, readiness) = (ClusterStore::default(), Readiness::default());
        let (secrets, receiver) = watch::channel(None);
        let metrics = OtherClusterMetrics::default();
        let watcher = OtherClusters::new(&store, receiver, metrics, &readiness);
        Self {
            store,
            secrets,
            readiness,
            watcher,
        }
    }

    fn put_offers(&self, offers: impl IntoIterator<Item = Offer>) {
        let offers = offers.into_iter().map(Object::Offer);
        self.store.reset(Kind::Offer, offers.collect());
    }

    /// Puts an offer in `shop` that names these clusters.
    fn name(&self, clusters: &[&str]) {
        let clusters: Vec<String> = clusters.iter().map(|&c| c.to_owned()).collect();
        self.put_offers([offer("shop", 1, &clusters)]);
    }

    fn put_secrets<const N: usize>(&self, clusters: [(&str, Result<Settings, Fault>); N]) {
        let clusters = clusters.map(|(name, settings)| (Arc::<str>::from(name), settings));
        self.secrets.send_replace(Some(clusters.into()));
    }

    fn is_ready(&self) -> bool {
        self.readiness.missing().is_empty()
    }

    /// The state of the pods of `shop`.
    fn state(&self, cluster: &str) -> Option<RemoteState> {
        let snapshot = self.store.snapshot();
        let pods = snapshot.remote_pods(cluster, "shop");
        pods.map(|pods| pods.state)
    }

    fn count(&self, cluster: &str, state: &'static str) -> Option<i64> {
        let cluster = cluster.to_owned();
        let labels = ByCluster { cluster, state };
        let gauge = self.watcher.metrics.namespaces.get(&labels);
        gauge.map(|gauge| gauge.get())
    }
}

fn unavailable(fault: Fault) -> Option<RemoteState> {
    Some(RemoteState::Unavailable(fault))
}

#[test]
fn scopes_are_limited_and_namespaces_take_turns() {
    let store = ClusterStore::default();
    // The later a cluster in the alphabet, the older its offer.
    let evil = names("a", 100);
    for (i, cluster) in evil.iter().enumerate() {
        let offer = Offer {
            name: cluster.as_str().into(),
            ..offer("evil", 100 - i as i64, std::slice::from_ref(cluster))
        };
        store.apply(Object::Offer(offer));
    }
    store.apply(Object::Offer(offer("shop", 1_000, &names("a", 3))));
    let (watched, beyond) = scopes(&store.snapshot(), None);
    assert_eq!(
        (watched.len(), beyond.len()),
        (MAX_SCOPES, 103 - MAX_SCOPES)
    );
    for cluster in names("a", 3) {
        assert!(watched.contains(&scope(&cluster, "shop")), "{watched:?}");
    }
    assert!(watched.contains(&scope("a099", "evil")));
    let limit = Some(&Fault::TooManyNamespaces);
    assert_eq!(beyond.get(&scope("a000", "evil")), limit);
    // Clusters without a usable Secret take no place.
    let clusters = [
        ("a000", Ok(settings("k", 60))),
        ("a099", Err(Fault::SeveralSecrets)),
    ];
    let clusters: Clusters = clusters.map(|(name, s)| (name.into(), s)).into();
    let (watched, beyond) = scopes(&store.snapshot(), Some(&clusters));
    assert_eq!(watched, ["evil", "shop"].map(|ns| scope("a000", ns)).into());
    assert_eq!(beyond[&scope("a099", "evil")], Fault::SeveralSecrets);
    assert_eq!(beyond[&scope("a098", "evil")], Fault::NoSecret);
}

#[tokio::test(start_paused = true)]
async fn readiness_waits_for_the_first_lists_but_not_for_long() {
    let mut world = World::new();
    world.watcher.tick();
    advance(Duration::from_secs(60)).await;
    world.watcher.tick();
    assert!(!world.is_ready(), "the offers are not listed");
    world.name(&["east"]);
    world.watcher.tick();
    assert_eq!(world.state("east"), unavailable(Fault::Connecting));
    advance(READY_WITHIN - Duration::from_secs(1)).await;
    world.watcher.tick();
    assert!(!world.is_ready());
    advance(Duration::from_secs(1)).await;
    world.watcher.tick();
    assert!(world.is_ready());
    assert_eq!(world.state("east"), unavailable(Fault::BadSecret));
    world.put_secrets([("east", Ok(settings("k", 60)))]);
    world.watcher.tick();
    assert_eq!(world.state("east"), unavailable(Fault::Connecting));
    assert!(world.is_ready());

    let mut world = World::new();
    world.put_offers([]);
    world.watcher.tick();
    assert!(world.is_ready(), "no offer names another cluster");
}

#[tokio::test(start_paused = true)]
async fn faults_of_secrets_are_those_of_their_clusters() {
    let mut world = World::new();
    world.name(&["bad", "none", "two"]);
    world.put_secrets([
        ("bad", Err(Fault::BadSecret)),
        ("two", Err(Fault::SeveralSecrets)),
    ]);
    world.watcher.tick();
    assert_eq!(world.state("bad"), unavailable(Fault::BadSecret));
    assert_eq!(world.state("none"), unavailable(Fault::NoSecret));
    assert_eq!(world.state("two"), unavailable(Fault::SeveralSecrets));
    assert!(world.is_ready(), "there is nothing to wait for");
    assert_eq!(world.count("bad", "unavailable"), Some(1));
    assert_eq!(world.count("bad", "current"), Some(0));
    assert_eq!(world.count("none", "unavailable"), None);
    world.name(&["bad"]);
    world.watcher.tick();
    assert_eq!(world.state("two"), None);
    assert_eq!(world.count("two", "unavailable"), None);
    assert_eq!(world.state("bad"), unavailable(Fault::BadSecret));
}

#[tokio::test(start_paused = true)]
async fn namespaces_beyond_the_limit_have_a_fault() {
    let mut world = World::new();
    let clusters = names("c", MAX_SCOPES + 1);
    world.put_offers([offer("shop", 1, &clusters)]);
    let usable = clusters
        .iter()
        .map(|c| (c.as_str().into(), Ok(settings("k", 60))));
    world.secrets.send_replace(Some(usable.collect()));
    world.watcher.tick();
    assert_eq!(world.state("c063"), unavailable(Fault::Connecting));
    assert_eq!(world.state("c064"), unavailable(Fault::TooManyNamespaces));
}

#[tokio::test(start_paused = true)]
async fn pods_stay_for_the_grace_when_the_secret_is_gone() {
    let mut world = World::new();
    world.name(&["east"]);
    world.put_secrets([("east", Ok(settings("k", 60)))]);
    world.watcher.tick();
    let list = |world: &World| {
        let pod = RemotePod {
            name: "db-0".into(),
            ..RemotePod::default()
        };
        let mut table = world.watcher.table.lock();
        table.listed(&scope("east", "shop"), vec![pod], Instant::now().into_std());
    };
    list(&world);
    world.watcher.tick();
    assert_eq!(world.state("east"), Some(RemoteState::Current));
    assert_eq!(world.count("east", "current"), Some(1));

    let contact = world.watcher.contacts["east"].namespaces.subscribe();
    world.put_secrets([("east", Ok(settings("k", 120)))]);
    world.watcher.tick();
    assert_eq!(world.state("east"), Some(RemoteState::Current));
    assert!(
        contact.has_changed().is_ok(),
        "another grace needs no new contact"
    );
    world.put_secrets([("east", Ok(settings("other", 120)))]);
    world.watcher.tick();
    assert!(contact.has_changed().is_err());
    let known = |fault| Some(RemoteState::LastKnown(fault));
    assert_eq!(world.state("east"), known(Fault::Connecting));
    list(&world);
    world.watcher.tick();
    assert_eq!(world.state("east"), Some(RemoteState::Current));

    world.put_secrets([]);
    world.watcher.tick();
    assert!(world.watcher.contacts.is_empty());
    assert!(!world.watcher.sessions.contains("east"));
    advance(Duration::from_secs(119)).await;
    world.watcher.tick();
    assert_eq!(world.state("east"), known(Fault::NoSecret));
    advance(Duration::from_secs(1)).await;
    world.watcher.tick();
    assert_eq!(world.state("east"), unavailable(Fault::NoSecret));
    let snapshot = world.store.snapshot();
    let pods = snapshot.remote_pods("east", "shop").unwrap();
    assert_eq!(pods.pods.len(), 1, "bindings keep their names");
}

#[tokio::test(start_paused = true)]
async fn malformed_kubeconfig_is_a_fault_until_the_secret_changes() {
    let World {
        store,
        secrets,
        readiness,
        watcher,
    } = World::new();
    let east = ["east".to_owned()];
    store.reset(Kind::Offer, vec![Object::Offer(offer("shop", 1, &east))]);
    let settings = Ok(settings("no kubeconfig", 60));
    secrets.send_replace(Some(Clusters::from([("east".into(), settings)])));
    let run = tokio::spawn(watcher.run());
    sleep(Duration::from_secs(1)).await;
    let state = || {
        let snapshot = store.snapshot();
        let pods = snapshot.remote_pods("east", "shop");
        pods.map(|pods| pods.state)
    };
    assert_eq!(state(), unavailable(Fault::BadSecret));
    assert!(readiness.missing().is_empty());
    secrets.send_replace(Some(Clusters::new()));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(state(), unavailable(Fault::NoSecret));
    run.abort();
}
