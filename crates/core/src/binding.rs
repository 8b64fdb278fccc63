//! Computes the bindings of an offer: one per tuple of its targets' objects, named as in
//! ciena/turnbuckle. Unlike in Turnbuckle, the order of targets with the same selector does not
//! matter: a tuple and its permutations are one binding, and an object has no binding with itself.

use std::{collections::BTreeMap, sync::Arc};

use hashbrown::HashMap;

use crate::{
    group::GroupName,
    index::{Member, OfferEntry},
    reference::Reference,
    selector::Selector,
};

/// The label of a binding that names its offer.
pub const OFFER_LABEL: &str = "constraint.ciena.io/constraintPolicyOffer";

/// The bindings by name, each as a map from its targets to references.
pub type BindingTargets = BTreeMap<String, BTreeMap<Arc<str>, Reference>>;

/// Returns the number of bindings that the targets of `entry` make, without making them;
/// `u128::MAX` if the number is too large.
pub fn binding_count(entry: &OfferEntry) -> u128 {
    let parts = parts(entry);
    let counts = parts.iter().map(|roles| count(roles));
    counts.fold(0, u128::saturating_add)
}

fn count(roles: &[Role<'_>]) -> u128 {
    // Targets with the same selector count each multiset of their objects once.
    let mut all = 1u128;
    for role in roles {
        let repeats = std::iter::successors(role.same_as, |i| roles[*i].same_as).count() as u128;
        let ways = role.members.len() as u128 + repeats;
        // The product of `repeats + 1` such quotients is a binomial coefficient.
        all = match all.checked_mul(ways) {
            Some(product) => product / (repeats + 1),
            None => return u128::MAX,
        };
    }
    all - of_one_object(roles)
}

/// Returns the first `most` bindings of `entry`, in the order of their objects' names.
pub fn desired_bindings(entry: &OfferEntry, most: usize) -> BindingTargets {
    let namespace = &entry.offer.namespace;
    let parts = parts(entry);
    let mut bindings = BTreeMap::new();
    let mut taken: HashMap<String, usize> = HashMap::new();
    let tuples = parts
        .iter()
        .flat_map(|roles| Tuples::new(roles).map(move |at| (roles, at)));
    for (roles, at) in tuples.take(most) {
        let tuple: BTreeMap<_, _> = roles
            .iter()
            .zip(&at)
            .map(|(role, i)| {
                let reference = role.members[*i].1.reference(namespace);
                (Arc::clone(role.name), reference)
            })
            .collect();
        let mut name = binding_name(&entry.offer.name, &tuple);
        // 32-bit hashes collide among thousands of bindings.
        let before = taken.entry(name.clone()).or_default();
        *before += 1;
        if *before > 1 {
            name = format!("{name}-{before}");
        }
        bindings.insert(name, tuple);
    }
    bindings
}

/// A target with the objects that it selects, sorted by name.
#[derive(Clone)]
struct Role<'a> {
    name: &'a Arc<str>,
    /// The cluster (empty for this one), the API version and the kind of the objects.
    kind: (&'a str, &'a str, &'static str),
    selector: &'a Selector,
    members: Vec<(&'a str, &'a Member)>,
    /// The position of the previous role with the same kind and selector.
    same_as: Option<usize>,
}

/// Returns the targets of an offer, sorted by name.
fn roles(entry: &OfferEntry) -> Vec<Role<'_>> {
    let local = entry.offer.targets.iter().map(|target| {
        let (api_version, kind) = target.selected_kind();
        (("", api_version, kind), &target.selector)
    });
    let remote = entry.offer.remote_targets.iter();
    let remote = remote.map(|target| ((&*target.cluster, "v1", "Pod"), &target.selector));
    let targets = entry.all_members().zip(local.chain(remote));
    let roles = targets.map(|((name, members), (kind, selector))| {
        let mut members: Vec<_> = members.iter().filter(|(_, m)| is_countable(m)).collect();
        members.sort_unstable_by_key(|(name, _)| *name);
        Role {
            name,
            kind,
            selector,
            members,
            same_as: None,
        }
    });
    let mut roles: Vec<Role<'_>> = roles.collect();
    roles.sort_unstable_by_key(|role| role.name);
    relate_equal_targets(&mut roles);
    roles
}

fn relate_equal_targets(roles: &mut [Role<'_>]) {
    for i in 0..roles.len() {
        let (before, rest) = roles.split_at_mut(i);
        let (kind, selector) = (rest[0].kind, rest[0].selector);
        let same = |role: &Role<'_>| role.kind == kind && role.selector == selector;
        rest[0].same_as = before.iter().rposition(same);
    }
}

/// Returns the targets of an offer for each part of its objects of which tuples are made: the pods
/// of each group if the offer relates these to each other, else all objects.
fn parts(entry: &OfferEntry) -> Vec<Vec<Role<'_>>> {
    let all = roles(entry);
    let offer = &entry.offer;
    let Some((rule, peers)) = offer.group.as_ref().and_then(|r| Some((r, r.peers?))) else {
        return vec![all];
    };
    let (mut others, mut grouped) = (Vec::new(), BTreeMap::<GroupName<'_>, Vec<Role<'_>>>::new());
    for mut role in all {
        let is_grouped = [rule.of, peers]
            .iter()
            .any(|at| offer.targets[*at].name == *role.name);
        if !is_grouped {
            others.push(role);
            continue;
        }
        for (name, member) in std::mem::take(&mut role.members) {
            let Member::Pod(pod) = member else { continue };
            let Some(group) = GroupName::of(rule, &pod.labels, pod.owner) else {
                continue;
            };
            let roles = grouped.entry(group).or_default();
            match roles.iter_mut().find(|known| known.name == role.name) {
                Some(known) => known.members.push((name, member)),
                None => roles.push(Role {
                    members: vec![(name, member)],
                    ..role.clone()
                }),
            }
        }
    }
    let with_others = grouped.into_values().map(|mut roles| {
        roles.extend(others.iter().cloned());
        roles.sort_unstable_by_key(|role| role.name);
        relate_equal_targets(&mut roles);
        roles
    });
    with_others.collect()
}

/// Returns whether a tuple may consist of one object alone: there are several targets, all of one
/// kind.
fn of_one_kind(roles: &[Role<'_>]) -> bool {
    let kind = roles.first().map(|r| r.kind);
    roles.len() > 1 && roles.iter().all(|r| Some(r.kind) == kind)
}

/// Returns the number of tuples that consist of one object alone.
fn of_one_object(roles: &[Role<'_>]) -> u128 {
    let Some((first, others)) = roles.split_first().filter(|_| of_one_kind(roles)) else {
        return 0;
    };
    let distinct: Vec<_> = others.iter().filter(|r| r.same_as.is_none()).collect();
    let everywhere = |name: &str| {
        let mut distinct = distinct.iter();
        distinct.all(|r| r.members.binary_search_by_key(&name, |(n, _)| *n).is_ok())
    };
    first
        .members
        .iter()
        .filter(|(name, _)| everywhere(name))
        .count() as u128
}

/// An iterator over tuples, each as the positions of its members; the last target varies fastest.
struct Tuples<'a> {
    roles: &'a [Role<'a>],
    of_one_kind: bool,
    next: Option<Vec<usize>>,
}

impl<'a> Tuples<'a> {
    fn new(roles: &'a [Role<'a>]) -> Self {
        let empty = roles.iter().any(|r| r.members.is_empty());
        Self {
            roles,
            of_one_kind: of_one_kind(roles),
            next: (!empty).then(|| vec![0; roles.len()]),
        }
    }

    fn after(&self, mut at: Vec<usize>) -> Option<Vec<usize>> {
        let more = |(role, i): (&Role<'_>, &usize)| i + 1 < role.members.len();
        let last = self.roles.iter().zip(&at).rposition(more)?;
        at[last] += 1;
        for i in last + 1..at.len() {
            // Only the ascending one of all permutations is made.
            at[i] = self.roles[i].same_as.map_or(0, |same| at[same]);
        }
        Some(at)
    }

    fn is_one_object(&self, at: &[usize]) -> bool {
        let mut names = self.roles.iter().zip(at).map(|(r, i)| r.members[*i].0);
        let first = names.next();
        self.of_one_kind && names.all(|name| Some(name) == first)
    }
}

impl Iterator for Tuples<'_> {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        loop {
            let at = self.next.take()?;
            self.next = self.after(at.clone());
            if !self.is_one_object(&at) {
                return Some(at);
            }
        }
    }
}

/// Returns whether a member gets bindings: a finished pod does not.
pub fn is_countable(member: &Member) -> bool {
    !matches!(member, Member::Pod(pod) if pod.finished)
}

/// Returns the name of a binding, `OFFER-HASH`: the hash is the tuple's 32-bit FNV-1a hash, in
/// decimal and then in Kubernetes' SafeEncode. It covers all five parts of each reference, also
/// empty parts: `:default:v1:Pod:web-0`.
pub fn binding_name(offer: &str, tuple: &BTreeMap<Arc<str>, Reference>) -> String {
    let mut hash: u32 = 0x811c_9dc5;
    for r in tuple.values() {
        let parts = [&r.cluster, &r.namespace, &r.api_version, &r.kind, &r.name];
        for byte in parts.map(String::as_str).join(":").bytes() {
            hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }
    let mut name = [offer, "-"].concat();
    name.extend(hash.to_string().bytes().map(safe));
    name
}

/// Encodes a byte as Kubernetes' SafeEncode does, by letters and digits that form no words.
/// <https://pkg.go.dev/k8s.io/apimachinery/pkg/util/rand#SafeEncodeString>
fn safe(byte: u8) -> char {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        index::{Index, Object},
        model::{GroupRule, Offer, Pod, Target, TargetKind},
        remote::{RemotePod, RemotePods, RemoteState, RemoteTarget, Scope},
    };

    fn pod(name: &str, app: &str) -> Pod {
        Pod {
            namespace: "default".into(),
            name: name.into(),
            labels: [("app", app)].into_iter().collect(),
            ..Pod::default()
        }
    }

    fn entry(targets: &[(&str, &str)], pods: Vec<Pod>) -> OfferEntry {
        let label = |app: &str| ("app".to_owned(), app.to_owned());
        entry_of([targets, &[]], label, [pods, Vec::new()])
    }

    /// The targets and pods of this cluster, and those of the cluster east.
    fn entry_of(
        [targets, remote_targets]: [&[(&str, &str)]; 2],
        label: impl Fn(&str) -> (String, String),
        [pods, remote_pods]: [Vec<Pod>; 2],
    ) -> OfferEntry {
        let mut index = Index::default();
        let selector = |app: &str| Selector {
            match_labels: vec![label(app)],
            ..Selector::default()
        };
        let target = |(name, app): &(&str, &str)| Target {
            name: (*name).into(),
            kind: TargetKind::Pod,
            api_version: String::new(),
            selector: selector(app),
        };
        let remote_target = |(name, app): &(&str, &str)| RemoteTarget {
            name: (*name).into(),
            cluster: "east".into(),
            selector: selector(app),
        };
        index.apply(Object::Offer(Offer {
            namespace: "default".into(),
            name: "gold-offer".into(),
            targets: targets.iter().map(target).collect(),
            remote_targets: remote_targets.iter().map(remote_target).collect(),
            ..Offer::default()
        }));
        for pod in pods {
            index.apply(Object::Pod(pod));
        }
        let remote_pods = remote_pods.into_iter().map(|pod| {
            let remote = RemotePod {
                cluster: "east".into(),
                namespace: pod.namespace,
                name: Arc::clone(&pod.name),
                labels: pod.labels,
                ..RemotePod::default()
            };
            (pod.name, Arc::new(remote))
        });
        index.apply(Object::RemotePods(RemotePods {
            scope: Scope {
                cluster: "east".into(),
                namespace: "default".into(),
            },
            state: RemoteState::Current,
            pods: remote_pods.collect(),
        }));
        index
            .snapshot()
            .offer("default", "gold-offer")
            .unwrap()
            .clone()
    }

    /// ciena/turnbuckle's controllers/constraint/offer_test.go; the hash is of
    /// `:default:v1:Pod:server:default:v1:Pod:client`, as its Reference.String writes it.
    #[test]
    fn desired_bindings_match_turnbuckle() {
        let pods = vec![
            pod("server", "hello-server"),
            pod("client", "hello-client"),
            pod("sample", "none"),
        ];
        let targets = [("source", "hello-client"), ("destination", "hello-server")];
        let entry = entry(&targets, pods);
        assert_eq!(binding_count(&entry), 1);
        let called = desired_bindings(&entry, 10);
        let (name, tuple) = called.first_key_value().unwrap();
        assert_eq!(name, "gold-offer-86cd9f9ddf");
        assert_eq!(tuple["source"], Reference::pod("default", "client"));
    }

    #[test]
    fn desired_bindings_skips_empty_targets_and_finished_pods() {
        let done = Pod {
            finished: true,
            ..pod("server", "b")
        };
        let entry = entry(&[("x", "a"), ("y", "b")], vec![pod("client", "a"), done]);
        assert_eq!(binding_count(&entry), 0);
        assert_eq!(desired_bindings(&entry, 10), BindingTargets::new());
    }

    /// Pods of two jobs have the same labels but that of their group, and one server.
    #[test]
    fn desired_bindings_relate_the_pods_of_one_group() {
        let mut entry = entry(
            &[("worker", "a"), ("others", "a"), ("server", "b")],
            Vec::new(),
        );
        let pods = ["x0", "x1", "x2", "y0", "y1", "none"].map(|name| {
            let job = (name != "none").then_some(("job", &name[..1]));
            let labels = [("app", "a")].into_iter().chain(job);
            Arc::new(Pod {
                labels: labels.collect(),
                ..pod(name, "a")
            })
        });
        for members in &mut entry.members[..2] {
            for pod in &pods {
                members.insert(&pod.name, Member::Pod(Arc::clone(pod)));
            }
        }
        let server = Arc::new(pod("server", "b"));
        entry.members[2].insert("server", Member::Pod(server));
        let mut offer = (*entry.offer).clone();
        offer.group = Some(GroupRule {
            by: Some("job".into()),
            of: 0,
            peers: Some(1),
            ..GroupRule::default()
        });
        entry.offer = Arc::new(offer);
        let called = desired_bindings(&entry, 100);
        let pairs = called.values().map(|tuple| {
            let names = ["others", "worker", "server"].map(|role| tuple[role].name.clone());
            names.join(" ")
        });
        let mut pairs: Vec<String> = pairs.collect();
        pairs.sort_unstable();
        let among = |names: [&str; 2]| names[0] != names[1];
        let all = pairs.iter().filter(|p| {
            let mut names = p.split(' ');
            among([names.next().unwrap(), names.next().unwrap()])
        });
        let expected = [
            "x0 x1 server",
            "x0 x2 server",
            "x1 x2 server",
            "y0 y1 server",
        ];
        assert_eq!(all.collect::<Vec<_>>(), expected);
        assert_eq!(binding_count(&entry), called.len() as u128);
    }

    #[test]
    fn pods_of_two_clusters_are_different_objects() {
        let label = |app: &str| ("app".to_owned(), app.to_owned());
        let both = [vec![pod("db-0", "a")], vec![pod("db-0", "a")]];
        let e = entry_of([&[("here", "a")], &[("there", "a")]], label, both);
        assert_eq!(binding_count(&e), 1);
        let called = desired_bindings(&e, 10);
        let (name, tuple) = called.first_key_value().unwrap();
        assert_eq!(tuple["here"].to_string(), "default:v1:Pod:db-0");
        assert_eq!(tuple["there"].to_string(), "east:default:v1:Pod:db-0");
        let mut hash: u32 = 0x811c_9dc5;
        for byte in ":default:v1:Pod:db-0east:default:v1:Pod:db-0".bytes() {
            hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
        let encoded: String = hash.to_string().bytes().map(safe).collect();
        assert_eq!(*name, format!("gold-offer-{encoded}"));
    }

    #[test]
    fn targets_of_one_other_cluster_have_no_order_and_no_self_pairs() {
        let label = |app: &str| ("app".to_owned(), app.to_owned());
        let there = ["p0", "p1", "p2"].map(|name| pod(name, "a")).to_vec();
        let targets = [("x", "a"), ("y", "a")];
        let e = entry_of([&[], &targets], label, [Vec::new(), there.clone()]);
        assert_eq!(binding_count(&e), 3);
        assert_eq!(desired_bindings(&e, 10).len(), 3);
        let e = entry_of(
            [&[("here", "a")], &targets],
            label,
            [vec![pod("p0", "a")], there],
        );
        // Beside a pod of this cluster one pod may have both roles, as beside an endpoint.
        assert_eq!(binding_count(&e), 6);
        assert_eq!(desired_bindings(&e, 10).len(), 6);
    }

    #[test]
    fn desired_bindings_survive_name_collisions() {
        // Both hash alike.
        let pods = vec![pod("p579599", "a"), pod("p762382", "a")];
        let called = desired_bindings(&entry(&[("x", "a")], pods), 10);
        let names: Vec<&String> = called.keys().collect();
        let [first, second] = names[..] else {
            panic!("{called:?}")
        };
        assert_eq!(*second, format!("{first}-2"));
    }

    proptest! {
        #[test]
        fn desired_bindings_gives_each_tuple_up_to_the_cap(a in 0usize..7, b in 0usize..7, both in 0usize..4, cap in 0usize..60) {
            let mut pods: Vec<Pod> = (0..a).map(|i| pod(&format!("a{i}"), "a")).collect();
            pods.extend((0..b).map(|i| pod(&format!("b{i}"), "b")));
            pods.extend((0..both).map(|i| pod(&format!("c{i}"), "c")));
            let e = entry(&[("q", "a"), ("p", "b"), ("r", "c")], pods);
            let called = desired_bindings(&e, cap);
            let all = a * b * both;
            prop_assert_eq!(binding_count(&e), all as u128);
            prop_assert_eq!(called.len(), all.min(cap));
            let tuples: BTreeSet<_> = called.values().cloned().collect();
            prop_assert_eq!(tuples.len(), all.min(cap), "each tuple once");
            let more = desired_bindings(&e, cap + 5);
            prop_assert!(called.keys().all(|n| more.contains_key(n)));
        }

        /// Targets of one selector, others beside them, and pods that several select, in two
        /// clusters whose pods have the same names.
        #[test]
        fn desired_bindings_makes_permutations_once(
            targets in proptest::collection::vec((0usize..2, 0usize..3), 1..5),
            pods in proptest::collection::vec([0usize..8, 0usize..8], 0..5),
        ) {
            let apps = ["a", "b", "c"];
            let names: Vec<String> = (0..targets.len()).map(|i| format!("t{i}")).collect();
            let selected = [0, 1].map(|cluster| {
                let here = names.iter().zip(&targets).filter(|(_, t)| t.0 == cluster);
                here.map(|(n, t)| (&**n, apps[t.1])).collect::<Vec<_>>()
            });
            let in_app = |pod: [usize; 2], (cluster, app): (usize, usize)| pod[cluster] & (1 << app) != 0;
            let all = [0, 1].map(|cluster| {
                let all = pods.iter().enumerate().map(|(i, bits)| {
                    let labels = (0..3).filter(|app| in_app(*bits, (cluster, *app)));
                    let labels = labels.map(|app| (apps[app], "yes")).collect();
                    Pod { labels, ..pod(&format!("p{i}"), "") }
                });
                all.collect()
            });
            // The pods of each app have its label.
            let label = |app: &str| (app.to_owned(), "yes".to_owned());
            let e = entry_of([&selected[0], &selected[1]], label, all);
            // The long way: every tuple, in which the objects of each selector are sorted.
            let mut expected = BTreeSet::new();
            for mut n in 0..pods.len().pow(targets.len() as u32) {
                let tuple: Vec<usize> = targets.iter().map(|_| (n % pods.len(), n /= pods.len()).0).collect();
                let fits = tuple.iter().zip(&targets).all(|(p, t)| in_app(pods[*p], *t));
                let one = |i: usize| (targets[i].0, tuple[i]);
                let alone = tuple.len() > 1 && (1..tuple.len()).all(|i| one(i) == one(0));
                if !fits || alone {
                    continue;
                }
                let sorted: BTreeSet<_> = targets.iter().map(|target| {
                    let of = tuple.iter().zip(&targets).filter(|(_, t)| *t == target);
                    let mut of: Vec<usize> = of.map(|(p, _)| *p).collect();
                    of.sort_unstable();
                    (*target, of)
                }).collect();
                expected.insert(sorted);
            }
            prop_assert_eq!(binding_count(&e), expected.len() as u128);
            let called = desired_bindings(&e, 10_000);
            prop_assert_eq!(called.len(), expected.len());
            let tuples: BTreeSet<_> = called.values().map(|tuple| {
                targets.iter().map(|target| {
                    let of = tuple.values().zip(&targets).filter(|(_, t)| *t == target);
                    let mut of: Vec<usize> = of.map(|(r, _)| r.name[1..].parse().unwrap()).collect();
                    of.sort_unstable();
                    (*target, of)
                }).collect()
            }).collect();
            prop_assert_eq!(tuples, expected);
            let clusters = called.values().flat_map(|tuple| tuple.values().zip(&targets));
            for (reference, (cluster, _)) in clusters {
                prop_assert_eq!(&*reference.cluster, ["", "east"][*cluster]);
            }
        }
    }

    #[test]
    fn desired_bindings_of_one_selector_have_no_order_and_no_self_pairs() {
        let pods = ["p0", "p1", "p2"].map(|name| pod(name, "a"));
        let e = entry(&[("x", "a"), ("y", "a")], pods.to_vec());
        let called = desired_bindings(&e, 10);
        let pairs = called
            .values()
            .map(|t| (t["x"].name.clone(), t["y"].name.clone()));
        let pairs: BTreeSet<_> = pairs.collect();
        let expected = [("p0", "p1"), ("p0", "p2"), ("p1", "p2")];
        let expected = expected.map(|(x, y)| (x.to_owned(), y.to_owned()));
        assert_eq!(pairs, BTreeSet::from(expected));
        let alone = entry(&[("x", "a"), ("y", "a")], vec![pod("p0", "a")]);
        assert_eq!(binding_count(&alone), 0);
        let single = entry(&[("x", "a")], vec![pod("p0", "a")]);
        assert_eq!(binding_count(&single), 1);
    }

    #[test]
    fn desired_bindings_are_not_built_beyond_the_bound() {
        let targets = ["1", "2", "3", "4", "5", "6", "7", "8"].map(|name| (name, "a"));
        let pods = |n: usize| (0..n).map(|i| pod(&format!("p{i:04}"), "a")).collect();
        let four = entry(&targets, pods(4));
        assert_eq!(binding_count(&four), 165 - 4, "not 65,536");
        assert_eq!(desired_bindings(&four, 10_000).len(), 161);
        let many = entry(&targets, pods(1_000));
        assert_eq!(binding_count(&many), 25_504_066_636_461_931_375 - 1_000);
        assert_eq!(desired_bindings(&many, 100).len(), 100);
        let names: Vec<String> = (0..40).map(|i| format!("t{i}")).collect();
        let targets: Vec<(&str, &str)> = names.iter().map(|n| (&**n, "a")).collect();
        let huge = entry(&targets, pods(1_000));
        assert_eq!(binding_count(&huge), u128::MAX);
        assert_eq!(desired_bindings(&huge, 100).len(), 100);
    }
}
