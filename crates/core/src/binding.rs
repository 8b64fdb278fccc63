//! The bindings of an offer, named as in ciena/turnbuckle: one per tuple of its targets' objects.

use std::{collections::BTreeMap, sync::Arc};

use hashbrown::HashMap;

use crate::{
    index::{Member, OfferEntry},
    reference::Reference,
};

/// The label of a binding that names its offer.
pub const OFFER_LABEL: &str = "constraint.ciena.io/constraintPolicyOffer";

/// The bindings that an offer should have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DesiredBindings {
    /// The number of tuples, without the cap.
    pub count: u128,
    /// At most `cap` tuples by binding name, in the order of their objects' names.
    pub bindings: BTreeMap<String, BTreeMap<Arc<str>, Reference>>,
}

/// The bindings that `entry` should have, at most `cap`.
pub fn desired_bindings(entry: &OfferEntry, cap: usize) -> DesiredBindings {
    let namespace = &entry.offer.namespace;
    let mut targets: Vec<(&Arc<str>, Vec<&Member>)> = entry
        .offer
        .targets
        .iter()
        .zip(&entry.members)
        .map(|(target, members)| {
            let mut named: Vec<_> = members.iter().filter(|(_, m)| is_countable(m)).collect();
            named.sort_unstable_by_key(|(name, _)| *name);
            (&target.name, named.into_iter().map(|(_, m)| m).collect())
        })
        .collect();
    targets.sort_unstable_by_key(|(name, _)| *name);
    let count = targets.iter().fold(1u128, |count, (_, members)| {
        count.saturating_mul(members.len() as u128)
    });
    let mut bindings = BTreeMap::new();
    let mut taken: HashMap<String, usize> = HashMap::new();
    for i in 0..usize::try_from(count).unwrap_or(usize::MAX).min(cap) {
        // The last target varies fastest.
        let mut rest = i;
        let mut tuple: Vec<(Arc<str>, Reference)> = Vec::with_capacity(targets.len());
        for (name, members) in targets.iter().rev() {
            let member = members[rest % members.len()];
            rest /= members.len();
            tuple.push((Arc::clone(name), member.reference(namespace)));
        }
        let tuple: BTreeMap<_, _> = tuple.into_iter().collect();
        let mut name = binding_name(&entry.offer.name, &tuple);
        // Hashes of 32 bits collide among thousands of bindings.
        let before = taken.entry(name.clone()).or_default();
        *before += 1;
        if *before > 1 {
            name = format!("{name}-{before}");
        }
        bindings.insert(name, tuple);
    }
    DesiredBindings { count, bindings }
}

/// Whether a member gets bindings: a finished pod does not.
pub fn is_countable(member: &Member) -> bool {
    !matches!(member, Member::Pod(pod) if pod.finished)
}

/// `OFFER-HASH`: the safely encoded decimal of the tuple's FNV-1a hash of 32 bits. The hash is of
/// all five parts of each reference, empty ones too: `:default:v1:Pod:web-0`.
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

/// Kubernetes' SafeEncode: letters and digits that form no words.
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
        model::{Offer, Pod, Target, TargetKind},
        selector::Selector,
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
        let mut index = Index::default();
        let target = |(name, app): &(&str, &str)| Target {
            name: (*name).into(),
            kind: TargetKind::Pod,
            api_version: String::new(),
            selector: Selector {
                match_labels: vec![("app".into(), (*app).to_owned())],
                ..Selector::default()
            },
        };
        index.apply(Object::Offer(Offer {
            namespace: "default".into(),
            name: "gold-offer".into(),
            targets: targets.iter().map(target).collect(),
            ..Offer::default()
        }));
        for pod in pods {
            index.apply(Object::Pod(pod));
        }
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
        let called = desired_bindings(&entry(&targets, pods), 10);
        assert_eq!(called.count, 1);
        let (name, tuple) = called.bindings.first_key_value().unwrap();
        assert_eq!(name, "gold-offer-86cd9f9ddf");
        assert_eq!(tuple["source"], Reference::pod("default", "client"));
    }

    #[test]
    fn desired_bindings_skips_empty_targets_and_finished_pods() {
        let done = Pod {
            finished: true,
            ..pod("server", "b")
        };
        let called = desired_bindings(
            &entry(&[("x", "a"), ("y", "b")], vec![pod("client", "a"), done]),
            10,
        );
        assert_eq!(called, DesiredBindings::default());
    }

    #[test]
    fn desired_bindings_survive_name_collisions() {
        // Both hash alike.
        let pods = vec![pod("p579599", "a"), pod("p762382", "a")];
        let called = desired_bindings(&entry(&[("x", "a")], pods), 10);
        let names: Vec<&String> = called.bindings.keys().collect();
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
            prop_assert_eq!(called.count, all as u128);
            prop_assert_eq!(called.bindings.len(), all.min(cap));
            let tuples: BTreeSet<_> = called.bindings.values().cloned().collect();
            prop_assert_eq!(tuples.len(), all.min(cap), "each tuple once");
            let more = desired_bindings(&e, cap + 5);
            prop_assert!(called.bindings.keys().all(|n| more.bindings.contains_key(n)));
        }
    }
}
