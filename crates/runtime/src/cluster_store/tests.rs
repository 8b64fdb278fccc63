use super::*;

fn pod(name: &str) -> Object {
    Object::Pod(Pod {
        namespace: "ns".into(),
        name: name.into(),
        ..Pod::default()
    })
}

fn names(feed: &ClusterStore) -> Vec<String> {
    let snapshot = feed.snapshot();
    let mut names: Vec<String> = snapshot.pods().map(|p| p.name.to_string()).collect();
    names.sort();
    names
}

#[test]
fn what_has_come_since_a_pod_was_read_stays() {
    let feed = ClusterStore::default();
    feed.apply(pod("a"));
    let read = Arc::clone(feed.snapshot().pod("ns", "a").unwrap());
    let bound = Pod {
        node: Some("n".into()),
        ..(*read).clone()
    };
    feed.replace(&read, bound.clone());
    let node = || Some(feed.snapshot().pod("ns", "a")?.node.clone());
    assert_eq!(node(), Some(Some("n".into())));
    feed.apply(pod("a"));
    feed.replace(&read, bound.clone());
    assert_eq!(node(), Some(None), "it has changed since");
    feed.delete(Kind::Pod, "ns/a");
    feed.replace(&read, bound);
    assert_eq!(node(), None, "it has gone since");
}

#[test]
fn a_pod_wakes_only_who_follows_pods() {
    let feed = ClusterStore::default();
    let (all, but_pods) = (feed.changes(), feed.changes_except_pods());
    feed.apply(pod("a"));
    assert!(all.has_changed().unwrap());
    assert!(!but_pods.has_changed().unwrap());
    feed.reject(Kind::Offer, "ns/bad", "why".to_owned());
    assert!(but_pods.has_changed().unwrap());
    let now = *but_pods.borrow();
    assert!(now.changed(&Versions::default(), &[Kind::Offer]));
}

#[test]
fn a_list_takes_away_what_it_has_not_brought_at_its_end_and_not_before() {
    let feed = ClusterStore::default();
    for name in ["a", "b", "bad"] {
        feed.apply(pod(name));
    }
    assert_eq!(names(&feed), ["a", "b", "bad"]);
    let mut cut_short = feed.begin_relist(Kind::Pod);
    cut_short.add(pod("c"));
    drop(cut_short);
    assert_eq!(names(&feed), ["a", "b", "bad", "c"]);
    let mut listing = feed.begin_relist(Kind::Pod);
    for name in ["b", "d"] {
        listing.add(pod(name));
    }
    listing.retain("ns/bad");
    feed.apply(pod("e"));
    assert_eq!(names(&feed), ["a", "b", "bad", "c", "d", "e"]);
    let before = *feed.changes().borrow();
    listing.commit();
    // "e" came after the list had begun: it is not the list's to take away.
    assert_eq!(names(&feed), ["b", "bad", "d", "e"]);
    assert!(feed.changes().borrow().changed(&before, &[Kind::Pod]));
    assert!(feed.listed(Kind::Pod) && !feed.listed(Kind::Policy));
    let before = *feed.changes().borrow();
    feed.begin_relist(Kind::Policy).commit();
    assert!(feed.changes().borrow().changed(&before, &[Kind::Policy]));
    let before = *feed.changes().borrow();
    let mut same = feed.begin_relist(Kind::Pod);
    for name in ["b", "bad", "d", "e"] {
        same.add(pod(name));
    }
    same.commit();
    assert!(!feed.changes().borrow().changed(&before, &[Kind::Pod]));
}
