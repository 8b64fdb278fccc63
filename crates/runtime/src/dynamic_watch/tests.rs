use std::{convert::Infallible, future::pending};

use http_body_util::Full;
use kube::client::Body;
use parking_lot::Mutex;
use tautline_core::{model::Target, selector::Selector};
use tokio_util::sync::DropGuard;

use super::*;

type Requests = Arc<Mutex<Vec<String>>>;

/// Serves the kind Cluster of groups that begin with `served` or `secret`, without permission for
/// the latter. `other` is its answer about other groups.
fn client(requests: &Requests) -> Client {
    let requests = Arc::clone(requests);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default();
        let watches = query.contains("watch=true");
        requests.lock().push(path.clone());
        async move {
            if watches {
                return pending().await;
            }
            let group = path.split('/').nth(2).unwrap_or_default();
            let lists = path.ends_with("/clusters");
            let failure = |code: u16, message: &str| {
                let reason = if code == 403 { "Forbidden" } else { "NotFound" };
                let text = format!(
                    r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure",
                         "message":"{message}","reason":"{reason}","code":{code}}}"#
                );
                (code, text)
            };
            let (code, text) = match (group, lists) {
                (g, true) if g.starts_with("served") => (
                    200,
                    r#"{"kind":"ClusterList","apiVersion":"v1","metadata":{"resourceVersion":"1"},
                        "items":[]}"#
                        .to_owned(),
                ),
                (g, true) if g.starts_with("secret") => failure(403, "clusters is forbidden"),
                (g, false) if g.starts_with("se") => (
                    200,
                    format!(
                        r#"{{"kind":"APIResourceList","groupVersion":"{g}/v1","resources":[
                            {{"name":"clusters","singularName":"cluster","namespaced":true,
                              "kind":"Cluster","verbs":["list","watch"]}}]}}"#
                    ),
                ),
                _ => failure(404, "the server could not find the requested resource"),
            };
            let answer = http::Response::builder().status(code);
            let body = Full::new(bytes::Bytes::from(text));
            Ok::<_, Infallible>(answer.body(body).unwrap())
        }
    });
    Client::new(service, "default")
}

fn offer(namespace: &str, name: &str, groups: &[String]) -> Object {
    let target = |group: &String| Target {
        name: group.as_str().into(),
        kind: TargetKind::Cluster,
        api_version: format!("{group}/v1"),
        selector: Selector::default(),
    };
    Object::Offer(Offer {
        namespace: namespace.into(),
        name: name.into(),
        uid: "".into(),
        created_unix: 0,
        terminating: false,
        targets: groups.iter().map(target).collect(),
        policies: Vec::new(),
        period: Duration::ZERO,
        grace: Duration::ZERO,
        provider_unavailable: None,
        ..Offer::default()
    })
}

struct Followed {
    store: ClusterStore,
    kinds: WatchedKinds,
    requests: Requests,
    _stop: DropGuard,
}

fn followed(offers: Vec<Object>) -> Followed {
    let (store, kinds, requests) = (
        ClusterStore::default(),
        WatchedKinds::default(),
        Requests::default(),
    );
    for offer in offers {
        store.apply(offer);
    }
    let stop = CancellationToken::new();
    tokio::spawn(watch_dynamic_kinds(
        client(&requests),
        store.clone(),
        kinds.clone(),
        stop.clone(),
    ));
    Followed {
        store,
        kinds,
        requests,
        _stop: stop.drop_guard(),
    }
}

impl Followed {
    fn count(&self) -> usize {
        self.requests.lock().len()
    }

    fn missing(&self, group: &str) -> Option<String> {
        self.kinds.missing(&format!("{group}/v1"), "Cluster")
    }

    fn listed(&self, group: &str) -> bool {
        self.kinds.listed(&format!("{group}/v1"), "Cluster")
    }
}

fn groups(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i:03}")).collect()
}

#[tokio::test(start_paused = true)]
async fn dynamic_watch_slows_down_for_many_missing_kinds() {
    let evil = groups("a", 200);
    let offers = evil.chunks(8).enumerate();
    let offers = offers.map(|(i, some)| offer("evil", &format!("o{i}"), some));
    let f = followed(offers.collect());
    tokio::time::sleep(Duration::from_secs(12)).await;
    let in_12_s = f.count();
    assert!((MAX_KINDS..=4 * MAX_KINDS).contains(&in_12_s), "{in_12_s}");
    tokio::time::sleep(Duration::from_secs(600)).await;
    let before = f.count();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let in_10_min = f.count() - before;
    assert!(
        (MAX_KINDS..=6 * MAX_KINDS).contains(&in_10_min),
        "{in_10_min}"
    );
    let messages = evil.iter().filter_map(|g| f.missing(g));
    let beyond = messages.filter(|why| *why == too_many()).count();
    assert_eq!(beyond, 200 - MAX_KINDS);
}

#[tokio::test(start_paused = true)]
async fn dynamic_watch_paces_discoveries() {
    let f = followed(Vec::new());
    let start = Instant::now();
    for i in 0..600 {
        f.store
            .apply(offer("evil", "o", &groups(&format!("a{i}-"), 8)));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let most = start.elapsed().div_duration_f64(DISCOVERY_INTERVAL) as usize + MAX_KINDS;
    assert!(f.count() <= most, "{} requests, not {most}", f.count());
}

#[tokio::test(start_paused = true)]
async fn dynamic_watch_serves_other_tenants() {
    let mut offers = vec![offer("shop", "o", &["served".to_owned()])];
    let evil = groups("a", 80);
    for (i, some) in evil.chunks(8).enumerate() {
        offers.push(offer("evil", &format!("o{i}"), some));
    }
    let f = followed(offers);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(f.listed("served"));
    assert_eq!(f.missing("served"), None);
}

#[tokio::test(start_paused = true)]
async fn unavailable_hides_missing_permissions() {
    let named = ["absent".to_owned(), "secret".to_owned()];
    let f = followed(vec![offer("evil", "o", &named)]);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let forbidden = f
        .requests
        .lock()
        .iter()
        .any(|p| p == "/apis/secret/v1/clusters");
    assert!(forbidden, "{:?}", f.requests.lock());
    let absent = f.missing("absent").unwrap();
    let secret = f.missing("secret").unwrap();
    assert_eq!(absent.replace("absent", "secret"), secret);
    assert!(!f.listed("absent") && !f.listed("secret"));
    tokio::time::sleep(ABSENT_AFTER).await;
    assert!(
        f.listed("absent") && f.listed("secret"),
        "both have no objects"
    );
}

fn gvk(group: &str) -> Gvk {
    (format!("{group}/v1"), "Cluster".to_owned())
}

#[test]
fn select_in_turn_serves_every_namespace() {
    let mut named: ByNamespace<'_> = BTreeMap::new();
    let evil = groups("a", 100);
    named.insert("evil", evil.iter().map(|g| (gvk(g), 1)).collect());
    named.insert("shop", BTreeMap::from([(gvk("zz"), 2)]));
    let (selected, beyond) = select_in_turn(&named, MAX_KINDS);
    assert_eq!((selected.len(), beyond.len()), (MAX_KINDS, 101 - MAX_KINDS));
    assert!(selected.contains(&gvk("zz")));
}

#[test]
fn select_in_turn_shares_places_and_prefers_the_oldest_offers() {
    let mut named: ByNamespace<'_> = BTreeMap::new();
    // The later a kind in the alphabet, the older its offer.
    let evil = groups("a", 100);
    let by_age = evil.iter().zip((0..100).rev());
    named.insert("evil", by_age.map(|(g, age)| (gvk(g), age)).collect());
    let shop = groups("z", 10);
    named.insert("shop", shop.iter().map(|g| (gvk(g), 1_000)).collect());
    let (selected, _) = select_in_turn(&named, MAX_KINDS);
    let of = |prefix: &str| selected.iter().filter(|k| k.0.starts_with(prefix)).count();
    assert_eq!((of("a"), of("z")), (MAX_KINDS / 2, MAX_KINDS / 2));
    let oldest = &evil[100 - MAX_KINDS / 2..];
    assert!(
        oldest.iter().all(|g| selected.contains(&gvk(g))),
        "{selected:?}"
    );

    // Of seventeen namespaces with a kind each the youngest gets none.
    let names: Vec<String> = (0..=MAX_KINDS).map(|i| format!("n{i:02}")).collect();
    let mut named: ByNamespace<'_> = BTreeMap::new();
    for (i, name) in names.iter().enumerate() {
        let age = 100 - i as i64;
        named.insert(name, BTreeMap::from([(gvk(name), age)]));
    }
    let (_, beyond) = select_in_turn(&named, MAX_KINDS);
    assert_eq!(beyond, BTreeSet::from([gvk("n00")]));
}

#[tokio::test(start_paused = true)]
async fn dynamic_watch_gives_a_place_to_a_tenant_that_comes_later() {
    let evil = groups("served-a", 80);
    let offers = evil.chunks(8).enumerate();
    let offers = offers.map(|(i, some)| offer("evil", &format!("o{i}"), some));
    let f = followed(offers.collect());
    tokio::time::sleep(Duration::from_secs(30)).await;
    let listed = evil.iter().filter(|g| f.listed(g)).count();
    assert_eq!(listed, MAX_KINDS, "nobody else wants one");
    f.store.apply(offer("shop", "o", &["served".to_owned()]));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(f.listed("served"));
    assert_eq!(f.missing("served"), None);
    let listed = evil.iter().filter(|g| f.listed(g)).count();
    assert_eq!(listed, MAX_KINDS - 1);
}
