use proptest::prelude::*;
use tautline_core::model::Taint;

use super::*;
use crate::dra::{
    DeviceFault, ExactRequest,
    fixtures::{holding, node, partitioned, pools, shared, whole},
    pool::PoolCounters,
};

fn free_names(pools: &DeviceStore, on: &str) -> Vec<String> {
    let free = pools.node_devices(&node(on));
    let all = free.devices().iter().enumerate();
    all.filter(|(i, _)| free.is_free(*i))
        .map(|(_, d)| d.id().device.to_string())
        .collect()
}

/// The reasons why pools are left out.
fn errors(pools: &DeviceStore) -> Vec<String> {
    let pools = pools.pools.values();
    pools
        .filter_map(|p| Some(p.as_ref().err()?.to_string()))
        .collect()
}

#[test]
fn claims_take_and_give_back() {
    let mut pools = pools([whole("n", 2), whole("m", 1)]);
    pools.reset_claims([holding("a", "n", &["gpu-1"])]);
    assert_eq!(free_names(&pools, "n"), ["gpu-0"]);
    assert_eq!(free_names(&pools, "m"), ["gpu-0"]);
    assert!(free_names(&pools, "other").is_empty());
    pools.reset_claims([holding("a", "n", &["gpu-0"])]);
    assert_eq!(free_names(&pools, "n"), ["gpu-1"]);
    pools.reset_claims([]);
    assert_eq!(free_names(&pools, "n"), ["gpu-0", "gpu-1"]);
    let mut admin = holding("b", "n", &["gpu-0"]);
    for a in admin.allocated.iter_mut().flatten() {
        a.admin = true;
    }
    pools.reset_claims([admin]);
    assert_eq!(free_names(&pools, "n").len(), 2);
}

#[test]
fn partitions_take_shared_counters() {
    let mut pools = pools(partitioned("n", 1));
    pools.reset_claims([holding("a", "n-parts", &["gpu-0-mig-4g40gb-0"])]);
    let free = free_names(&pools, "n");
    assert!(!free.contains(&"gpu-0".into()));
    assert!(free.contains(&"gpu-0-mig-3g40gb-4".into()));
    assert!(!free.contains(&"gpu-0-mig-3g40gb-0".into()));
    assert!(!free.iter().any(|n| n.starts_with("gpu-0-mig-7g")));
}

#[test]
fn shares_add_up() {
    let mut pools = pools([shared("n", 1, 80)]);
    pools.reset_claims([("a", 30_000), ("b", 40_000)].map(|(name, amount)| {
        let mut claim = holding(name, "n-shared", &["shared-0"]);
        for a in claim.allocated.iter_mut().flatten() {
            a.share = Some(name.into());
            a.consumed = [("memory".into(), amount)].into();
        }
        claim
    }));
    let free = pools.node_devices(&node("n"));
    assert_eq!(free.devices()[0].left("memory"), 10_000);
    assert_eq!(free.cards()[0].free_milli, 125);
}

#[test]
fn a_pool_counts_once_all_of_its_newest_slices_are_there() {
    let [counters, devices] = partitioned("n", 1);
    let mut pools = pools([devices.clone()]);
    assert!(free_names(&pools, "n").is_empty());
    assert_eq!(
        errors(&pools),
        ["1 of 2 slices of generation 1 are published; wait for the driver"]
    );
    pools.reset_slices([counters.clone(), devices.clone()]);
    assert!(!free_names(&pools, "n").is_empty());
    let newer = |s: &Slice| Slice {
        generation: 2,
        ..s.clone()
    };
    pools.reset_slices([newer(&counters), devices.clone()]);
    assert!(free_names(&pools, "n").is_empty());
    pools.reset_slices([newer(&counters), newer(&devices)]);
    assert!(!free_names(&pools, "n").is_empty());
    let old = Slice {
        name: "old".into(),
        ..devices.clone()
    };
    pools.reset_slices([newer(&counters), newer(&devices), old]);
    assert!(!free_names(&pools, "n").is_empty());
    pools.reset_slices([newer(&devices)]);
    assert!(free_names(&pools, "n").is_empty());
}

#[test]
fn pools_that_contradict_themselves_are_ignored() {
    let mut twice = whole("n", 2);
    twice.devices[1].name = "gpu-0".into();
    let mut counters = partitioned("n", 1);
    counters[1].devices[0].consumes[0].name = "other".into();
    let pools = pools(counters.into_iter().chain([twice]));
    let free = pools.node_devices(&node("n"));
    assert!(free.devices().is_empty());
    assert_eq!(
        errors(&pools),
        [
            "device gpu-0 is published twice; the driver must give each its own name",
            "device gpu-0 consumes counters that set other lacks; fix the driver",
        ]
    );
}

#[test]
fn devices_of_several_nodes() {
    let on = |access: Access, name: &str| Slice {
        name: name.into(),
        id: crate::dra::fixtures::pool(name),
        access,
        ..whole("x", 1)
    };
    let terms = vec![tautline_core::model::AffinityTerm {
        labels: vec![
            tautline_core::selector::Expression::new("rack", "In", vec!["r1".into()]).unwrap(),
        ],
        ..Default::default()
    }];
    let mut per_device = whole("y", 2);
    per_device.access = Access::PerDevice;
    per_device.devices[0].access = Some(Access::Node("n".into()));
    per_device.devices[1].access = Some(Access::Node("m".into()));
    let pools = pools([
        on(Access::All, "a"),
        on(Access::Nodes(terms), "b"),
        per_device,
    ]);
    let mut n = node("n");
    n.labels = [("rack", "r1")].into_iter().collect();
    let ids = |node: &Node| -> Vec<String> {
        let free = pools.node_devices(node);
        let id = |d: &NodeDevice| format!("{}/{}", d.id.pool.pool, d.id.device);
        free.devices().iter().map(id).collect()
    };
    let of = |p: &str, d: &str| format!("{p}/{d}");
    assert_eq!(
        ids(&n),
        [of("a", "gpu-0"), of("b", "gpu-0"), of("y", "gpu-0")]
    );
    assert_eq!(ids(&node("m")), [of("a", "gpu-0"), of("y", "gpu-1")]);
}

#[test]
fn pools_with_binding_conditions_come_last() {
    let mut first = whole("n", 1);
    first.devices[0].binding_conditions = true;
    let pools = pools([first, shared("n", 1, 80)]);
    let free = pools.node_devices(&node("n"));
    assert_eq!(&*free.devices()[0].id().device, "shared-0");
}

#[test]
fn pods_find_their_claims() {
    let mut pools = DeviceStore::default();
    let mut reserved = holding("a", "n", &["gpu-0"]);
    reserved.reserved_for = vec!["u1".into(), "u2".into()];
    let mut made = holding("b", "n", &[]);
    (made.allocated, made.owner) = (None, Some("u1".into()));
    pools.reset_claims([reserved.clone(), made, holding("c", "n", &[])]);
    let names = |pools: &DeviceStore, uid: &str, named: &[&'static str]| -> Vec<String> {
        let found = pools.claims_of(uid, "default", named.iter().copied());
        found.iter().map(|c| c.name.to_string()).collect()
    };
    assert_eq!(names(&pools, "u1", &[]), ["a", "b"]);
    assert_eq!(names(&pools, "u2", &["c", "a", "gone"]), ["a", "c"]);
    reserved.reserved_for.clear();
    pools.reset_claims([reserved]);
    assert!(names(&pools, "u2", &[]).is_empty());
}

#[test]
fn faults_of_held_devices() {
    let mut slice = whole("n", 2);
    let mut pools = pools([slice.clone()]);
    let claim = holding("a", "n", &["gpu-0"]);
    pools.reset_claims([claim.clone()]);
    let held = &claim.clone().allocated.unwrap()[0];
    assert_eq!(pools.fault(held), None);
    pools.reset_claims([claim.clone(), holding("b", "n", &["gpu-0"])]);
    assert_eq!(pools.fault(held), Some(DeviceFault::OverCommitted));
    pools.reset_claims([claim]);
    slice.devices[0].taints = vec![Taint {
        key: "sick".into(),
        value: String::new(),
        effect: "NoExecute".into(),
    }];
    pools.reset_slices([slice.clone()]);
    assert_eq!(pools.fault(held), Some(DeviceFault::Tainted("sick".into())));
    slice.devices.remove(0);
    pools.reset_slices([slice]);
    assert_eq!(pools.fault(held), Some(DeviceFault::Gone));
    pools.reset_slices([]);
    assert_eq!(pools.fault(held), Some(DeviceFault::Gone));
}

#[test]
fn partitions_beyond_their_card_are_a_fault() {
    let mut pools = pools(partitioned("n", 1));
    let both = holding(
        "a",
        "n-parts",
        &["gpu-0-mig-4g40gb-0", "gpu-0-mig-2g20gb-2"],
    );
    pools.reset_claims([both.clone()]);
    let held = &both.allocated.unwrap()[0];
    assert_eq!(pools.fault(held), Some(DeviceFault::OverCommitted));
    let free = pools.node_devices(&node("n"));
    assert!(free.counters.iter().any(PoolCounters::overdrawn));
    assert!(free.cards()[0].free_milli <= 1000);
}

proptest! {
    #[test]
    fn held_is_not_free(held in prop::collection::vec(0..40usize, 0..10)) {
        let slices = partitioned("n", 2);
        let names: Vec<String> = slices[1].devices.iter().map(|d| d.name.to_string()).collect();
        let mut pools = pools(slices);
        let held: Vec<&str> = held.iter().filter_map(|i| names.get(*i)).map(String::as_str).collect();
        pools.reset_claims([holding("a", "n-parts", &held)]);
        let free = free_names(&pools, "n");
        prop_assert!(held.iter().all(|h| !free.iter().any(|f| f == h)));
        let mut devices = pools.node_devices(&node("n"));
        for i in 0..devices.devices().len() {
            let could = devices.is_free(i);
            prop_assert_eq!(devices.take(i, &ExactRequest::default()).is_some(), could);
        }
    }
}
