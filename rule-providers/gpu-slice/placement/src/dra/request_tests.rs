use super::*;
use crate::dra::{
    DeviceShortage, NodeDevices,
    fixtures::{node, partitioned, pools, shared, whole},
    model::{Access, Class, Slice},
};

fn class(name: &str, selector: &str) -> Class {
    Class {
        name: name.into(),
        selectors: vec![selector.into()],
        ..Class::default()
    }
}

fn claim(class: &str, selectors: &[&str], count: Count) -> Claim {
    Claim {
        namespace: "default".into(),
        name: "c".into(),
        requests: vec![vec![ExactRequest {
            class: class.into(),
            count,
            selectors: selectors.iter().map(|s| (*s).into()).collect(),
            ..ExactRequest::default()
        }]],
        ..Claim::default()
    }
}

fn with_classes(mut pools: DeviceStore) -> DeviceStore {
    pools.reset_classes([
        class(
            "gpu",
            "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'",
        ),
        class(
            "mig",
            "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'",
        ),
        class("any", "device.driver == 'gpu.nvidia.com'"),
    ]);
    pools
}

fn taken(pools: &DeviceStore, claims: &[&Claim]) -> Option<Vec<String>> {
    let mut free = pools.node_devices(&node("n"));
    let pending = pending_requests(pools, claims.iter().copied());
    let taken = match free.take_likely(&pending) {
        Ok(taken) => taken,
        Err(shortage) => {
            assert_eq!(shortage, DeviceShortage::Certain);
            return None;
        }
    };
    let name = |i: &usize| free.devices()[*i].id().device.to_string();
    Some(taken.iter().map(name).collect())
}

#[test]
fn take_likely_gives_whole_cards_by_class() {
    let pools = with_classes(pools([whole("n", 3)]));
    let two = claim("gpu", &[], Count::Exact(2));
    let pending = pending_requests(&pools, [&two]);
    assert_eq!(pending[0].count(), 2);
    assert_eq!(taken(&pools, &[&two]).unwrap(), ["gpu-0", "gpu-1"]);
    assert_eq!(taken(&pools, &[&two, &two]), None);
    let all = claim("gpu", &[], Count::All);
    assert_eq!(taken(&pools, &[&all]).unwrap().len(), 3);
}

#[test]
fn take_likely_follows_mig_profiles() {
    let pools = with_classes(pools(partitioned("n", 1)));
    let profile = "device.attributes['gpu.nvidia.com'].profile == '3g.40gb'";
    let one = claim("mig", &[profile], Count::Exact(1));
    // The scheduler takes the first published device, here the place at 0.
    assert_eq!(taken(&pools, &[&one]).unwrap(), ["gpu-0-mig-3g40gb-0"]);
    assert_eq!(taken(&pools, &[&one, &one]).unwrap().len(), 2);
    assert_eq!(taken(&pools, &[&one, &one, &one]), None);
}

/// The devices of a node with three cards of different architectures.
fn three_cards() -> DeviceStore {
    let mut slice = whole("n", 3);
    for (device, architecture) in slice.devices.iter_mut().zip(["Hopper", "Ampere", "Ada"]) {
        let attributes = &mut device.attributes;
        attributes.insert("architecture".into(), architecture.into());
    }
    with_classes(pools([slice]))
}

fn of_architecture(name: &str) -> String {
    format!("device.attributes['gpu.nvidia.com'].architecture == '{name}'")
}

#[test]
fn an_earlier_request_leaves_what_a_later_one_needs() {
    let pools = three_cards();
    let any = claim("gpu", &[], Count::Exact(1));
    let two = claim("gpu", &[], Count::Exact(2));
    let hopper = claim("gpu", &[&of_architecture("Hopper")], Count::Exact(1));
    let ampere = claim("gpu", &[&of_architecture("Ampere")], Count::Exact(1));
    assert_eq!(taken(&pools, &[&any, &hopper]).unwrap(), ["gpu-1", "gpu-0"]);
    assert_eq!(
        taken(&pools, &[&two, &ampere]).unwrap(),
        ["gpu-0", "gpu-2", "gpu-1"]
    );
    assert_eq!(taken(&pools, &[&two, &two]), None);
    assert_eq!(taken(&pools, &[&hopper, &hopper]), None);
    // A failed search gives all devices back.
    let mut free = pools.node_devices(&node("n"));
    let before = format!("{free:?}");
    assert!(
        free.take_likely(&pending_requests(&pools, [&two, &two]))
            .is_err()
    );
    assert_eq!(format!("{free:?}"), before);
}

#[test]
fn alternatives_are_tried_in_their_order() {
    let pools = three_cards();
    let alternative =
        |count, selectors: &[&str]| claim("gpu", selectors, count).requests[0][0].clone();
    let mut either = claim("gpu", &[], Count::Exact(1));
    let hopper = of_architecture("Hopper");
    either.requests[0] = vec![
        alternative(Count::Exact(1), &[&hopper]),
        alternative(Count::Exact(2), &[]),
    ];
    assert_eq!(taken(&pools, &[&either]).unwrap(), ["gpu-0"]);
    let second = taken(&pools, &[&either, &either]).unwrap();
    assert_eq!(second, ["gpu-0", "gpu-1", "gpu-2"]);
    assert_eq!(taken(&pools, &[&either, &either, &either]), None);
}

#[test]
fn searches_end_although_there_are_too_many_choices() {
    let devices = |pools: &DeviceStore| -> NodeDevices { pools.node_devices(&node("n")) };
    let pools = with_classes(pools([whole("n", 40)]));
    let ten = |key: &str| {
        let mut ten = claim("gpu", &[], Count::Exact(10));
        let toleration = tautline_core::model::Toleration {
            key: Some(key.into()),
            ..Default::default()
        };
        ten.requests[0][0].tolerations.push(toleration);
        ten
    };
    let different = ["a", "b", "c", "d", "e"].map(ten);
    let found = devices(&pools).take_likely(&pending_requests(&pools, &different));
    assert_eq!(found, Err(DeviceShortage::Uncertain));
    // Of equal requests the number tells.
    assert_eq!(taken(&pools, &[&different[0]; 5]), None);
    assert_eq!(taken(&pools, &[&different[0]; 4]).unwrap().len(), 40);
    // A request gets 32 devices at most.
    for count in [Count::Exact(33), Count::All] {
        assert_eq!(taken(&pools, &[&claim("gpu", &[], count)]), None);
    }
}

#[test]
fn matches_ignores_unreadable_selectors() {
    let pools = with_classes(pools([whole("n", 1)]));
    let big = "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0";
    let one = claim("gpu", &[big], Count::Exact(1));
    let pending = pending_requests(&pools, [&one]);
    let free = pools.node_devices(&node("n"));
    assert!(pending[0].matches(&free.devices()[0]));
    assert_eq!(taken(&pools, &[&one]).unwrap(), ["gpu-0"]);
    let other = "device.attributes['gpu.nvidia.com'].architecture == 'Hopper'";
    assert_eq!(
        taken(&pools, &[&claim("gpu", &[other], Count::Exact(1))]),
        None
    );
}

#[test]
fn unknown_class_matches_no_device() {
    let pools = with_classes(pools([whole("n", 1)]));
    let one = claim("nobody", &[], Count::Exact(1));
    let pending = pending_requests(&pools, [&one]);
    assert_eq!(pending[0].unknown_class(), Some("nobody"));
    assert_eq!(taken(&pools, &[&one]), None);
}

#[test]
fn take_likely_shares_devices() {
    let pools = with_classes(pools([shared("n", 2, 80)]));
    let mut half = claim("any", &[], Count::Exact(2));
    half.requests[0][0].capacity.insert("memory".into(), 40_000);
    // One request for two takes two devices; two requests may share one.
    let names = taken(&pools, &[&half, &half]).unwrap();
    assert_eq!(names, ["shared-0", "shared-1", "shared-0", "shared-1"]);
    assert_eq!(taken(&pools, &[&half, &half, &half]), None);
}

/// A request for all devices waits until all of them can be had.
#[test]
fn all_devices_are_taken_together_or_not_at_all() {
    let mut slice = whole("n", 2);
    let all = claim("gpu", &[], Count::All);
    let lacks = |pools: &DeviceStore, claim: &Claim| {
        let mut free = pools.node_devices(&node("n"));
        let taken = free.take_likely(&pending_requests(pools, [claim]));
        taken == Err(DeviceShortage::Certain)
    };
    let mut store = with_classes(pools([slice.clone()]));
    assert!(!lacks(&store, &all));
    store.reset_claims([crate::dra::fixtures::holding("a", "n", &["gpu-1"])]);
    assert!(lacks(&store, &all));
    // Of the devices that meet an unreadable selector, the held one may be none.
    let big = "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0";
    assert!(!lacks(&store, &claim("gpu", &[big], Count::All)));
    slice.devices[1].taints = vec![tautline_core::model::Taint {
        key: "sick".into(),
        effect: "NoSchedule".into(),
        ..Default::default()
    }];
    assert!(lacks(&with_classes(pools([slice.clone()])), &all));
    slice.devices[1].taints.clear();
    assert!(!lacks(
        &with_classes(pools([slice.clone()])),
        &claim("gpu", &[], Count::Exact(2))
    ));
    // The other slice of an incomplete pool may have more of them.
    let mut half = shared("n", 1, 80);
    half.slices = 2;
    let with_half = |half: Slice| with_classes(pools([slice.clone(), half]));
    assert!(lacks(&with_half(half.clone()), &all));
    half.access = Access::Node("other".into());
    assert!(!lacks(&with_half(half), &all));
}

/// A shared device with too little left is none of all devices.
#[test]
fn all_devices_are_those_with_enough_capacity() {
    let mut store = with_classes(pools([shared("n", 2, 80)]));
    let mut held = crate::dra::fixtures::holding("a", "n-shared", &["shared-0"]);
    let allocation = &mut held.allocated.as_mut().unwrap()[0];
    allocation.share = Some("s".into());
    allocation.consumed.insert("memory".into(), 60_000);
    store.reset_claims([held]);
    let mut all = claim("any", &[], Count::All);
    all.requests[0][0].capacity.insert("memory".into(), 40_000);
    assert_eq!(taken(&store, &[&all]).unwrap(), ["shared-1"]);
    assert_eq!(
        taken(&store, &[&all, &all]).unwrap(),
        ["shared-1", "shared-1"]
    );
    assert_eq!(taken(&store, &[&all, &all, &all]), None);
}

#[test]
fn pending_requests_skip_allocated_claims() {
    let pools = with_classes(pools([whole("n", 1)]));
    let held = crate::dra::fixtures::holding("a", "n", &["gpu-0"]);
    let pending = pending_requests(&pools, [&held]);
    assert!(pending.is_empty());
    let mut either = claim("gpu", &[], Count::Exact(1));
    let request = &mut either.requests[0];
    request.push(ExactRequest {
        class: "mig".into(),
        ..ExactRequest::default()
    });
    let pending = pending_requests(&pools, [&either]);
    let classes = pending[0].alternatives.iter().map(|a| &*a.exact.class);
    assert_eq!(classes.collect::<Vec<_>>(), ["gpu", "mig"]);
}

#[test]
fn of_resource_finds_the_class_of_an_extended_resource() {
    let mut pools = pools([whole("n", 3)]);
    let named = |name: &str, created_unix: i64| Class {
        created_unix,
        extended_resource: Some("example.com/gpu".into()),
        ..class(name, "device.driver == 'gpu.nvidia.com'")
    };
    pools.reset_classes([named("b", 1), named("old", 0), named("a", 1)]);
    let found = pools.class_of_resource("example.com/gpu").unwrap();
    assert_eq!(&*found.name, "a");
    let implicit = "deviceclass.resource.kubernetes.io/old";
    assert_eq!(&*pools.class_of_resource(implicit).unwrap().name, "old");
    assert_eq!(
        PendingRequest::of_resource(&pools, "nvidia.com/gpu", 1),
        None
    );
    let pending = PendingRequest::of_resource(&pools, "example.com/gpu", 2).unwrap();
    let taken = pools
        .node_devices(&node("n"))
        .take_likely(&[pending])
        .unwrap();
    assert_eq!(taken.len(), 2);
}

/// An allocation has what a claim of the API has, and ties the claim to the nodes of its devices.
#[test]
fn allocations_hold_what_the_requests_take() {
    // The whole card comes first, and then the halves of the shared one.
    let mut store = with_classes(pools([shared("n", 1, 80), whole("n", 1)]));
    let mut half = claim("any", &[], Count::Exact(1));
    half.requests[0][0].capacity.insert("memory".into(), 40_000);
    let allocated = |store: &DeviceStore, claim: &Claim| {
        let mut devices = store.node_devices(&node("n"));
        let allocated = devices.allocate(&pending_requests(store, [claim])).ok()?;
        let allocated = allocated.concat();
        let nodes = devices.nodes_of(&allocated, &node("n"));
        Some((allocated, nodes))
    };
    for (name, consumed) in [("a", None), ("b", Some(&40_000)), ("c", Some(&40_000))] {
        let (held, nodes) = allocated(&store, &half).unwrap();
        assert_eq!(held.len(), 1);
        assert_eq!(held[0].share.is_some(), consumed.is_some(), "{name}");
        assert_eq!(held[0].consumed.get("memory"), consumed, "{name}");
        let terms = nodes.unwrap();
        assert!(terms[0].matches(&node("n")) && !terms[0].matches(&node("m")));
        store.put_claim(Claim {
            name: name.into(),
            allocated: Some(held),
            nodes: Some(terms),
            ..half.clone()
        });
    }
    assert_eq!(allocated(&store, &half), None);
    let mut everywhere = shared("n", 1, 80);
    everywhere.access = Access::All;
    let store = with_classes(pools([everywhere]));
    assert_eq!(allocated(&store, &half).unwrap().1, None);
}
