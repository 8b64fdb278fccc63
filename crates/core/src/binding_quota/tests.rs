use proptest::prelude::*;

use super::*;

fn quota(offer: usize, namespace: usize, total: usize) -> BindingQuota {
    BindingQuota::new(BindingLimits {
        offer,
        namespace,
        total,
    })
}

fn counts(quota: &BindingQuota, offers: &[&str]) -> Vec<usize> {
    offers.iter().map(|o| quota.grant(o).count).collect()
}

#[test]
fn offers_have_what_they_call_for_within_the_limits() {
    let mut quota = quota(10, 20, 30);
    quota.call_for("a/x", 1, 7, 0);
    assert!(quota.is_open());
    assert_eq!(quota.share_out(), HashSet::from(["a/x".into()]));
    assert!(!quota.is_open());
    let all = Grant {
        count: 7,
        withheld: 0,
        bound: None,
    };
    assert_eq!(quota.grant("a/x"), all);
    assert_eq!(quota.grant("a/absent"), Grant::default());
    quota.call_for("a/x", 1, 7, 0);
    assert_eq!(quota.share_out(), HashSet::new(), "nothing has changed");
}

#[test]
fn grants_name_their_bound() {
    let mut quota = quota(10, 15, 20);
    quota.call_for("a/old", 1, u128::MAX, 0);
    quota.call_for("a/young", 2, 9, 0);
    quota.call_for("b/x", 3, 9, 0);
    quota.share_out();
    let old = quota.grant("a/old");
    assert_eq!((old.count, old.bound), (10, Some(Bound::Offer)));
    assert_eq!(old.withheld, u128::MAX - 10);
    let young = quota.grant("a/young");
    assert_eq!((young.count, young.withheld), (5, 4));
    assert_eq!(young.bound, Some(Bound::Namespace));
    let other = quota.grant("b/x");
    assert_eq!((other.count, other.bound), (5, Some(Bound::Total)));
    assert_eq!(quota.grants().count(), 3);
}

#[test]
fn what_is_free_goes_to_the_oldest_first() {
    let mut quota = quota(10, 10, 100);
    for (offer, created) in [("a/young", 9), ("a/old", 1), ("a/middle", 5)] {
        quota.call_for(offer, created, 6, 0);
    }
    quota.share_out();
    assert_eq!(counts(&quota, &["a/old", "a/middle", "a/young"]), [6, 4, 0]);
    quota.forget("a/old");
    let changed = quota.share_out();
    assert_eq!(counts(&quota, &["a/middle", "a/young"]), [6, 4]);
    assert_eq!(changed.len(), 2);
}

#[test]
fn an_offer_that_comes_and_goes_takes_nothing_from_others() {
    let mut quota = quota(10, 10, 100);
    quota.call_for("a/old", 1, 6, 0);
    quota.call_for("a/young", 2, 4, 0);
    quota.share_out();
    quota.call_for("a/old", 1, 9, 0);
    assert_eq!(quota.share_out(), HashSet::new());
    assert_eq!(counts(&quota, &["a/old", "a/young"]), [6, 4]);
    assert_eq!(quota.grant("a/old").bound, Some(Bound::Namespace));
    for _ in 0..3 {
        quota.call_for("a/older", 0, 9, 0);
        assert_eq!(quota.share_out().len(), 1, "the older one itself");
        quota.forget("a/older");
        assert_eq!(quota.share_out(), HashSet::new());
    }
    assert_eq!(counts(&quota, &["a/old", "a/young"]), [6, 4]);
}

#[test]
fn a_new_leader_grants_what_exists() {
    let mut quota = quota(10, 10, 100);
    quota.call_for("a/old", 1, 9, 6);
    quota.call_for("a/young", 2, 9, 4);
    quota.share_out();
    assert_eq!(counts(&quota, &["a/old", "a/young"]), [6, 4]);
}

#[test]
fn another_offer_of_the_name_is_a_new_one() {
    let mut quota = quota(10, 10, 100);
    quota.call_for("a/x", 1, 10, 0);
    quota.call_for("a/y", 2, 10, 0);
    quota.share_out();
    quota.call_for("a/x", 3, 10, 0);
    quota.share_out();
    assert_eq!(counts(&quota, &["a/y", "a/x"]), [10, 0]);
}

proptest! {
    /// No bound is exceeded, and nothing stays free that an offer calls for.
    #[test]
    fn bounds_hold_and_nothing_is_wasted(
        steps in proptest::collection::vec((0u8..3, 0u8..4, 0u16..20), 1..60),
        limits in (1usize..12, 1usize..16, 1usize..30),
    ) {
        let mut quota = quota(limits.0, limits.1, limits.2);
        let mut wanted = std::collections::BTreeMap::new();
        for (namespace, name, count) in steps {
            let key = format!("{namespace}/{name}");
            let before: HashMap<String, usize> = wanted.keys().map(|k: &String| (k.clone(), quota.grant(k).count)).collect();
            if count == 0 {
                quota.forget(&key);
                wanted.remove(&key);
            } else {
                quota.call_for(&key, i64::from(name), u128::from(count), 0);
                wanted.insert(key.clone(), usize::from(count));
            }
            let changed = quota.share_out();
            let mut used: HashMap<&str, usize> = HashMap::new();
            for (offer, wanted) in &wanted {
                let grant = quota.grant(offer);
                prop_assert!(grant.count <= *wanted && grant.count <= limits.0);
                prop_assert_eq!(grant.withheld, (*wanted - grant.count) as u128);
                prop_assert_eq!(grant.bound.is_some(), grant.withheld > 0);
                *used.entry(namespace_of(offer)).or_default() += grant.count;
                let was = before.get(offer).copied().unwrap_or(0);
                prop_assert_eq!(changed.contains(&**offer), was != grant.count || !before.contains_key(offer));
                prop_assert!(*offer == key || grant.count >= was, "others keep theirs");
            }
            let total: usize = used.values().sum();
            prop_assert!(total <= limits.2 && used.values().all(|u| *u <= limits.1));
            for (offer, wanted) in &wanted {
                let of = used.get(namespace_of(offer)).copied().unwrap_or(0);
                let could = quota.grant(offer).count < (*wanted).min(limits.0);
                prop_assert!(!could || of == limits.1 || total == limits.2);
            }
        }
    }
}
