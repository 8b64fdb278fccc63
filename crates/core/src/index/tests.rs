use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    constraints::{PodIdentity, pod_constraints},
    model::{ServicePort, Target},
    remote::{Fault, RemotePod, RemotePods, RemoteState, RemoteTarget, Scope},
    selector::{Expression, Labels, Selector},
};

pub(super) fn pod(name: &str, app: &str, node: Option<&str>) -> Object {
    Object::Pod(Pod {
        namespace: "ns".into(),
        name: name.into(),
        labels: [("app", app)].into_iter().collect::<Labels>(),
        node: node.map(Into::into),
        ..Pod::default()
    })
}

/// An application, or any (`*`).
fn selector(app: &str) -> Selector {
    match app {
        "*" => Selector {
            match_expressions: vec![Expression::new("app", "Exists", vec![]).unwrap()],
            ..Selector::default()
        },
        app => Selector {
            match_labels: vec![("app".into(), app.to_owned())],
            ..Selector::default()
        },
    }
}

/// Each target is an application, or `APP@CLUSTER` for one of another cluster.
pub(super) fn offer(name: &str, targets: &[&str]) -> Object {
    let (remote, local): (Vec<&str>, Vec<&str>) = targets.iter().partition(|t| t.contains('@'));
    let target = |app: &&str| Target {
        name: (*app).into(),
        kind: TargetKind::Pod,
        api_version: "v1".into(),
        selector: selector(app),
    };
    let remote = remote.into_iter().map(|name| {
        let (app, cluster) = name.split_once('@').unwrap();
        RemoteTarget {
            name: name.into(),
            cluster: cluster.into(),
            selector: selector(app),
        }
    });
    Object::Offer(Offer {
        namespace: "ns".into(),
        name: name.into(),
        uid: "".into(),
        created_unix: 0,
        targets: local.iter().map(target).collect(),
        remote_targets: remote.collect(),
        policies: vec![],
        period: Duration::ZERO,
        grace: Duration::ZERO,
        provider_unavailable: None,
        ..Offer::default()
    })
}

/// The pods of a namespace of another cluster, by name and application.
pub(super) fn remote_pods(
    (cluster, namespace): (&str, &str),
    state: RemoteState,
    pods: &[(&str, &str)],
) -> Object {
    let pods = pods.iter().map(|(name, app)| {
        let pod = RemotePod {
            cluster: cluster.into(),
            namespace: namespace.into(),
            name: (*name).into(),
            labels: [("app", app)].into_iter().collect(),
            ..RemotePod::default()
        };
        (Arc::clone(&pod.name), Arc::new(pod))
    });
    Object::RemotePods(RemotePods {
        scope: Scope {
            cluster: cluster.into(),
            namespace: namespace.into(),
        },
        state,
        pods: pods.collect(),
    })
}

fn describe(index: &Index) -> Vec<String> {
    let s = index.snapshot();
    let mut lines: Vec<String> = s.pods().map(|p| format!("{p:?}")).collect();
    for node in ["a", "b"] {
        let mut on: Vec<&str> = s.pods_on(node).iter().map(|p| &*p.name).collect();
        on.sort_unstable();
        lines.push(format!("{node}: {on:?}"));
    }
    for app in ["web", "db"] {
        let labels: Labels = [("app", app)].into_iter().collect();
        let selects = |e: &&OfferEntry| {
            let mut targets = e.offer.targets.iter();
            targets.any(|t| t.selector.matches(&labels))
        };
        let found: Vec<_> = s
            .candidate_offers("ns", &labels)
            .filter(selects)
            .map(|e| &e.offer.name)
            .collect();
        let all: Vec<_> = s
            .offers_in("ns")
            .iter()
            .map(Arc::as_ref)
            .filter(selects)
            .map(|e| &e.offer.name)
            .collect();
        assert_eq!(found, all, "{app}");
    }
    for entry in s.offers_in("ns") {
        for (target, members) in entry.all_members() {
            let members: BTreeMap<&str, &Member> = members.iter().collect();
            lines.push(format!("{} {target}: {members:?}", entry.offer.name));
        }
    }
    lines.sort();
    lines
}

#[test]
fn snapshot_is_immutable() {
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
fn apply_of_an_equal_object_changes_nothing() {
    let mut index = Index::default();
    assert!(index.apply(pod("p", "web", None)));
    assert!(!index.apply(pod("p", "web", None)));
    assert!(index.apply(offer("o", &["web"])));
    assert!(!index.apply(offer("o", &["web"])));
    assert!(!index.delete(Kind::Pod, "ns/other"));
}

#[derive(Clone, Debug)]
enum Op {
    Apply(Box<Object>),
    Delete(Kind, String),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let name = prop::sample::select(vec!["p", "q", "r"]);
    let offers = prop::sample::select(vec!["n", "o"]);
    let app = prop::sample::select(vec!["web", "db"]);
    let node = prop::sample::select(vec![None, Some("a"), Some("b")]);
    let scope = prop::sample::select(vec![("east", "ns"), ("east", "other"), ("west", "ns")]);
    let pods = prop::collection::vec((name.clone(), app.clone()), 0..3);
    let op = prop_oneof![
        (name.clone(), app, node).prop_map(|(n, a, on)| Op::Apply(pod(n, a, on).into())),
        name.prop_map(|n| Op::Delete(Kind::Pod, format!("ns/{n}"))),
        (scope.clone(), pods).prop_map(|(scope, pods)| {
            Op::Apply(remote_pods(scope, RemoteState::Current, &pods).into())
        }),
        scope.prop_map(|(c, ns)| Op::Delete(Kind::RemotePods, format!("{c}/{ns}"))),
        (
            offers.clone(),
            prop::sample::select(vec![
                &["web"][..],
                &["web", "db"],
                &["db"],
                &["*", "web"],
                &["*"],
                &["web", "web@east"],
                &["web@east", "db", "*@west", "db@east"],
            ])
        )
            .prop_map(|(name, apps)| Op::Apply(offer(name, apps).into())),
        offers.prop_map(|name| Op::Delete(Kind::Offer, format!("ns/{name}"))),
    ];
    prop::collection::vec(op, 0..40)
}

proptest! {
    /// The state depends on the last objects only, not on the order of changes.
    #[test]
    fn index_depends_on_the_last_state_only(ops in ops(), offers_first in any::<bool>()) {
        let mut index = Index::default();
        let mut last: std::collections::BTreeMap<(Kind, String), Object> = Default::default();
        for op in ops {
            match op {
                Op::Apply(o) => { last.insert((o.kind(), o.key()), Object::clone(&o)); index.apply(*o); }
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

type Seen = (Offer, Vec<BTreeMap<String, String>>);

proptest! {
    #[test]
    fn changed_offers_gives_differing_offers(steps in proptest::collection::vec((0usize..9, "[a-c]", 0usize..3), 1..30)) {
        let mut index = Index::default();
        let members_by_offer = |s: &Snapshot| -> BTreeMap<String, Seen> {
            s.offers()
                .map(|e| {
                    let members = |m: &CowMap<Member>| m.iter().map(|(n, m)| (n.to_owned(), format!("{m:?}"))).collect();
                    (e.offer.name.to_string(), ((*e.offer).clone(), e.all_members().map(|(_, m)| members(m)).collect()))
                })
                .collect()
        };
        let mut before = index.snapshot();
        for (what, name, app) in steps {
            let app = ["a", "b", "none"][app];
            match what {
                0 => _ = index.apply(offer(&name, &[app])),
                1 => _ = index.delete(Kind::Offer, &format!("ns/{name}")),
                2 => _ = index.apply(pod(&name, app, None)),
                3 => _ = index.apply(pod(&name, app, Some("a"))),
                4 => _ = index.delete(Kind::Pod, &format!("ns/{name}")),
                5 => _ = index.apply(offer(&name, &[app, "a@east"])),
                6 => _ = index.apply(remote_pods(("east", "ns"), RemoteState::Current, &[(&*name, app)])),
                7 => _ = index.apply(remote_pods(("east", "ns"), RemoteState::Unavailable(Fault::Off), &[])),
                _ => _ = index.apply(pod("x", app, None)),
            }
            let after = index.snapshot();
            let (was, is) = (members_by_offer(&before), members_by_offer(&after));
            let mut differ: Vec<&String> = is.iter().filter(|(k, v)| was.get(*k) != Some(v)).map(|(k, _)| k).collect();
            differ.extend(was.keys().filter(|k| !is.contains_key(*k)));
            differ.sort();
            let mut changed: Vec<String> = after
                .changed_offers(&before)
                .iter()
                .filter_map(|(old, new)| new.or(*old).map(|e| e.offer.name.to_string()))
                .collect();
            changed.sort();
            prop_assert_eq!(changed.iter().collect::<Vec<_>>(), differ);
            before = after;
        }
    }
}

#[test]
fn dynamic_objects_become_members() {
    let target = |name: &str, kind| Target {
        name: name.into(),
        kind,
        api_version: "clusters.example.com/v1".into(),
        selector: Selector::default(),
    };
    let mut index = Index::default();
    index.apply(Object::Offer(Offer {
        namespace: "ns".into(),
        name: "o".into(),
        targets: vec![
            target("c", TargetKind::Cluster),
            target("e", TargetKind::Endpoint),
        ],
        ..Offer::default()
    }));
    let other = |api_version: &str, kind: &str, namespace: &str, name: &str| WatchedObject {
        api_version: api_version.into(),
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
        labels: Labels::default(),
    };
    let clusters = vec![
        other("clusters.example.com/v1", "Cluster", "", "everywhere"),
        other("clusters.example.com/v1", "Cluster", "ns", "here"),
        other("clusters.example.com/v1", "Cluster", "elsewhere", "there"),
    ];
    index.reset_dynamic("clusters.example.com/v1", "Cluster", clusters.clone());
    index.reset_dynamic(
        "v1",
        "Endpoints",
        vec![other("v1", "Endpoints", "ns", "db")],
    );
    let members = |index: &Index| -> Vec<String> {
        let s = index.snapshot();
        let entry = s.offer("ns", "o").unwrap();
        let mut all: Vec<String> = entry
            .members
            .iter()
            .flat_map(|m| m.values().map(|m| m.reference("ns").to_string()))
            .collect();
        all.sort();
        all
    };
    assert_eq!(
        members(&index),
        [
            "clusters.example.com/v1:Cluster:everywhere",
            "ns:clusters.example.com/v1:Cluster:here",
            "ns:v1:Endpoints:db",
        ]
    );
    assert!(!index.reset_dynamic("clusters.example.com/v1", "Cluster", clusters));
    index.reset_dynamic("clusters.example.com/v1", "Cluster", vec![]);
    assert_eq!(members(&index), ["ns:v1:Endpoints:db"]);
}

#[test]
fn endpoints_are_peers_at_the_nodes_of_their_pods_and_at_addresses_outside() {
    let labels = |value: &str| -> Labels { [("app", value)].into_iter().collect() };
    let target = |name: &str, kind, value: &str| Target {
        name: name.into(),
        kind,
        api_version: String::new(),
        selector: selector(value),
    };
    let mut index = Index::default();
    index.apply(Object::Offer(Offer {
        namespace: "ns".into(),
        name: "o".into(),
        targets: vec![
            target("web", TargetKind::Pod, "web"),
            target("db", TargetKind::Endpoint, "db"),
        ],
        ..Offer::default()
    }));
    let slice = |name: &str, places: &[&str]| {
        Object::EndpointSlice(EndpointSlice {
            namespace: "ns".into(),
            name: name.into(),
            service: "db".into(),
            labels: labels("db"),
            places: places.iter().map(|p| (*p).into()).collect(),
            ..EndpointSlice::default()
        })
    };
    let external = |name: &str| {
        Object::Service(Service {
            namespace: "ns".into(),
            name: name.into(),
            external_name: Some("db.example.com.".into()),
            external_labels: labels("db"),
            ports: vec![ServicePort {
                name: String::new(),
                port: 5432,
            }],
            ..Service::default()
        })
    };
    let pod = PodIdentity {
        namespace: "ns".into(),
        name: "web-0".into(),
        labels: labels("web"),
        ..PodIdentity::default()
    };
    let places = |index: &Index| -> Vec<String> {
        let constraints = pod_constraints(&index.snapshot(), &pod);
        let peers = constraints[0].peer_nodes().into_iter();
        peers.map(str::to_owned).collect()
    };
    assert!(places(&index).is_empty());
    index.apply(slice("db-1", &[]));
    assert_eq!(places(&index), ["db"], "a table may have the name");
    index.apply(slice("db-1", &["203.0.113.9:5432", "n1"]));
    index.apply(slice("db-2", &["n1", "n2"]));
    assert_eq!(places(&index), ["203.0.113.9:5432", "n1", "n2"]);
    index.delete(Kind::EndpointSlice, "ns/db-1");
    assert_eq!(places(&index), ["n1", "n2"]);
    index.apply(external("far"));
    assert_eq!(places(&index), ["db.example.com:5432", "n1", "n2"]);
    index.delete(Kind::Service, "ns/far");
    assert_eq!(places(&index), ["n1", "n2"]);
}
