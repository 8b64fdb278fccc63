use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{
    model::Target,
    selector::{Labels, Selector},
};

fn pod(name: &str, app: &str, node: Option<&str>) -> Object {
    Object::Pod(Pod {
        namespace: "ns".into(),
        name: name.into(),
        labels: [("app", app)].into_iter().collect::<Labels>(),
        node: node.map(Into::into),
        ..Pod::default()
    })
}

fn offer(name: &str, apps: &[&str]) -> Object {
    let target = |app: &&str| Target {
        name: (*app).into(),
        kind: TargetKind::Pod,
        api_version: "v1".into(),
        selector: Some(Selector {
            match_labels: vec![("app".into(), (*app).to_owned())],
            ..Selector::default()
        }),
    };
    Object::Offer(Offer {
        namespace: "ns".into(),
        name: name.into(),
        uid: "".into(),
        targets: apps.iter().map(target).collect(),
        policies: vec![],
        period: Duration::ZERO,
        grace: Duration::ZERO,
        violation_policy: Default::default(),
        provider_unavailable: None,
    })
}

/// What an index says, in a form that can be compared.
fn describe(index: &Index) -> Vec<String> {
    let s = index.snapshot();
    let mut lines: Vec<String> = s.pods().map(|p| format!("{p:?}")).collect();
    for node in ["a", "b"] {
        let mut on: Vec<&str> = s.pods_on(node).iter().map(|p| &*p.name).collect();
        on.sort_unstable();
        lines.push(format!("{node}: {on:?}"));
    }
    for entry in s.offers_in("ns") {
        for (target, members) in entry.offer.targets.iter().zip(&entry.members) {
            let mut names: Vec<&str> = members.iter().map(|(n, _)| n).collect();
            names.sort_unstable();
            lines.push(format!("{} {}: {names:?}", entry.offer.name, target.name));
        }
    }
    lines.sort();
    lines
}

#[test]
fn a_snapshot_does_not_move() {
    let mut index = Index::default();
    index.apply(offer("o", &["web"]));
    index.apply(pod("p", "web", None));
    let before = index.snapshot();
    index.apply(pod("p", "db", Some("a")));
    assert!(before.pod("ns", "p").unwrap().node.is_none());
    assert_eq!(before.offers_in("ns")[0].members[0].len(), 1);
    assert_eq!(index.snapshot().offers_in("ns")[0].members[0].len(), 0);
    assert_eq!(index.snapshot().pods_on("a").len(), 1);
}

#[test]
fn applying_the_same_again_changes_nothing() {
    let mut index = Index::default();
    assert!(index.apply(pod("p", "web", None)));
    assert!(!index.apply(pod("p", "web", None)));
    assert!(index.apply(offer("o", &["web"])));
    assert!(!index.apply(offer("o", &["web"])));
    assert!(!index.delete(Kind::Pod, "ns/other"));
}

#[derive(Clone, Debug)]
enum Op {
    Apply(Object),
    Delete(Kind, String),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let name = prop::sample::select(vec!["p", "q", "r"]);
    let app = prop::sample::select(vec!["web", "db"]);
    let node = prop::sample::select(vec![None, Some("a"), Some("b")]);
    let op = prop_oneof![
        (name.clone(), app, node).prop_map(|(n, a, on)| Op::Apply(pod(n, a, on))),
        name.prop_map(|n| Op::Delete(Kind::Pod, format!("ns/{n}"))),
        prop::sample::select(vec![&["web"][..], &["web", "db"], &["db"]])
            .prop_map(|apps| Op::Apply(offer("o", apps))),
        Just(Op::Delete(Kind::Offer, "ns/o".into())),
    ];
    prop::collection::vec(op, 0..40)
}

proptest! {
    /// However a state came about, it is the one that its objects alone give.
    #[test]
    fn history_does_not_matter(ops in ops(), offers_first in any::<bool>()) {
        let mut index = Index::default();
        let mut last: std::collections::BTreeMap<(Kind, String), Object> = Default::default();
        for op in ops {
            match op {
                Op::Apply(o) => { last.insert((o.kind(), o.key()), o.clone()); index.apply(o); }
                Op::Delete(kind, key) => { last.remove(&(kind, key.clone())); index.delete(kind, &key); }
            }
        }
        let mut fresh = Index::default();
        let (offers, others): (Vec<_>, Vec<_>) = last.into_values().partition(|o| o.kind() == Kind::Offer);
        let order = if offers_first { [offers, others] } else { [others, offers] };
        for object in order.concat() { fresh.apply(object); }
        prop_assert_eq!(describe(&index), describe(&fresh));

        // A reset to the same objects changes nothing; to none empties.
        let pods: Vec<Object> = index.snapshot().pods().map(|p| Object::Pod((**p).clone())).collect();
        prop_assert!(!index.reset(Kind::Pod, pods));
        index.reset(Kind::Pod, []);
        prop_assert_eq!(index.snapshot().pod_count(), 0);
    }
}
