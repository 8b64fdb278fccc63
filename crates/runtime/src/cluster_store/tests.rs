use super::*;

fn pod(name: &str) -> Object {
    Object::Pod(Pod {
        namespace: "ns".into(),
        name: name.into(),
        ..Pod::default()
    })
}

fn names(store: &ClusterStore) -> Vec<String> {
    let snapshot = store.snapshot();
    let mut names: Vec<String> = snapshot.pods().map(|p| p.name.to_string()).collect();
    names.sort();
    names
}

#[test]
fn replace_keeps_newer_pods() {
    let store = ClusterStore::default();
    store.apply(pod("a"));
    let read = Arc::clone(store.snapshot().pod("ns", "a").unwrap());
    let bound = Pod {
        node: Some("n".into()),
        ..(*read).clone()
    };
    store.replace(&read, bound.clone());
    let node = || Some(store.snapshot().pod("ns", "a")?.node.clone());
    assert_eq!(node(), Some(Some("n".into())));
    store.apply(pod("a"));
    store.replace(&read, bound.clone());
    assert_eq!(node(), Some(None), "it has changed since");
    store.delete(Kind::Pod, "ns/a");
    store.replace(&read, bound);
    assert_eq!(node(), None, "it has gone since");
}

#[test]
fn changes_except_pods_ignores_pods() {
    let store = ClusterStore::default();
    let (all, but_pods) = (store.changes(), store.changes_except_pods());
    store.apply(pod("a"));
    assert!(all.has_changed().unwrap());
    assert!(!but_pods.has_changed().unwrap());
    store.reject(Kind::Offer, "ns/bad", "why".to_owned());
    assert!(but_pods.has_changed().unwrap());
    let now = *but_pods.borrow();
    assert!(now.changed(&Versions::default(), &[Kind::Offer]));
}

#[test]
fn relist_commit_removes_missing_objects() {
    let store = ClusterStore::default();
    for name in ["a", "b", "bad"] {
        store.apply(pod(name));
    }
    assert_eq!(names(&store), ["a", "b", "bad"]);
    let mut cut_short = store.begin_relist(Kind::Pod);
    cut_short.add(pod("c"));
    drop(cut_short);
    assert_eq!(names(&store), ["a", "b", "bad", "c"]);
    let mut listing = store.begin_relist(Kind::Pod);
    for name in ["b", "d"] {
        listing.add(pod(name));
    }
    listing.retain("ns/bad");
    store.apply(pod("e"));
    assert_eq!(names(&store), ["a", "b", "bad", "c", "d", "e"]);
    let before = *store.changes().borrow();
    listing.commit();
    // "e" came after the start of the list, which therefore does not remove it.
    assert_eq!(names(&store), ["b", "bad", "d", "e"]);
    assert!(store.changes().borrow().changed(&before, &[Kind::Pod]));
    assert!(store.listed(Kind::Pod) && !store.listed(Kind::Policy));
    let before = *store.changes().borrow();
    store.begin_relist(Kind::Policy).commit();
    assert!(store.changes().borrow().changed(&before, &[Kind::Policy]));
    let before = *store.changes().borrow();
    let mut same = store.begin_relist(Kind::Pod);
    for name in ["b", "bad", "d", "e"] {
        same.add(pod(name));
    }
    same.commit();
    assert!(!store.changes().borrow().changed(&before, &[Kind::Pod]));
}

#[test]
fn pause_pods_ends_when_a_reader_wants_pods() {
    let store = ClusterStore::default();
    let long = Duration::from_secs(600);
    let pausing = store.clone();
    let thread = std::thread::spawn(move || pausing.pause_pods(long));
    let wanted = store.want_pods();
    thread.join().unwrap();
    // No pause while a reader waits.
    store.pause_pods(long);
    drop(wanted);
    let (begun, short) = (Instant::now(), Duration::from_millis(1));
    store.pause_pods(short);
    assert!(begun.elapsed() >= short);
}
