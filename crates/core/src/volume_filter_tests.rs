//! Tests of the filter by volumes.

use super::*;
use crate::{
    index::{Index, Object},
    selector::Expression,
    volumes::VolumeDemand,
};

fn zone(values: &[&str]) -> Vec<AffinityTerm> {
    let values = values.iter().map(|v| (*v).to_owned()).collect();
    vec![AffinityTerm {
        labels: vec![Expression::new("zone", "In", values).unwrap()],
        ..AffinityTerm::default()
    }]
}

fn claim(name: &str, volume: Option<&str>) -> VolumeClaim {
    VolumeClaim {
        namespace: "ns".into(),
        name: name.into(),
        volume: volume.map(Into::into),
        class: Some("local".into()),
        is_observed: true,
        ..VolumeClaim::default()
    }
}

fn volume(name: &str, at: &str) -> Volume {
    Volume {
        name: name.into(),
        affinity: zone(&[at]),
        class: "local".into(),
        is_available: true,
        ..Volume::default()
    }
}

fn class(provisions: bool, topologies: Vec<AffinityTerm>) -> StorageClass {
    StorageClass {
        name: "local".into(),
        waits_for_pod: true,
        provisions,
        topologies,
        ..StorageClass::default()
    }
}

fn storage(claims: &[VolumeClaim], volumes: &[Volume], class: StorageClass) -> Storage {
    let mut storage = Storage::default();
    claims.iter().cloned().for_each(|c| storage.add_claim(c));
    volumes.iter().cloned().for_each(|v| storage.add_volume(v));
    storage.add_class(class);
    storage
}

fn volumes(pod: &str, claims: &[&str]) -> PodVolumes {
    PodVolumes {
        namespace: "ns".into(),
        name: pod.into(),
        claims: claims.iter().map(|name| (*name).into()).collect(),
        ..PodVolumes::default()
    }
}

/// Returns the reasons on a node of zone a and one of zone b, for a new pod with these claims.
fn reasons(index: &Index, storage: &Storage, claims: &[&str]) -> [String; 2] {
    let snapshot = index.snapshot();
    let pod = Pod {
        namespace: "ns".into(),
        name: "new".into(),
        ..Pod::default()
    };
    let volumes = volumes("new", claims);
    let filter = VolumeFilter::new(&snapshot, storage, &pod, &volumes);
    ["a", "b"].map(|zone| {
        let labels = [("zone", zone), ("topology.kubernetes.io/zone", zone)];
        let node = Node {
            labels: labels.into_iter().collect(),
            ..Node::default()
        };
        let conflict = filter.conflict(&node);
        conflict.map_or(String::new(), |conflict| conflict.to_string())
    })
}

#[test]
fn bound_claim_follows_its_volume() {
    let index = Index::default();
    let mut volumes = [volume("v", "b")];
    let there = storage(
        &[claim("data", Some("v"))],
        &volumes,
        class(true, Vec::new()),
    );
    let elsewhere = "volume of claim data is elsewhere";
    assert_eq!(reasons(&index, &there, &["data"]), [elsewhere, ""]);
    volumes[0].affinity.clear();
    volumes[0].labels = [("failure-domain.beta.kubernetes.io/zone", "a__c")]
        .into_iter()
        .collect();
    let labelled = storage(
        &[claim("data", Some("v"))],
        &volumes,
        class(true, Vec::new()),
    );
    assert_eq!(reasons(&index, &labelled, &["data"]), ["", elsewhere]);
    // Of an unknown volume nothing is known.
    let unknown = storage(&[claim("data", Some("x"))], &[], class(true, Vec::new()));
    assert_eq!(reasons(&index, &unknown, &["data"]), ["", ""]);
}

#[test]
fn waiting_claim_needs_a_volume_or_a_topology() {
    let index = Index::default();
    let claims = [claim("one", None), claim("two", None)];
    let none = ["one", "two"].map(|name| format!("no volume for claim {name}"));
    let made = storage(&claims, &[], class(true, zone(&["b"])));
    assert_eq!(reasons(&index, &made, &["one"]), [&*none[0], ""]);
    let local = storage(&claims, &[volume("v", "a")], class(false, Vec::new()));
    assert_eq!(reasons(&index, &local, &["one"]), ["", &*none[0]]);
    // One volume serves one claim.
    assert_eq!(
        reasons(&index, &local, &["one", "two"]),
        [&*none[1], &*none[0]]
    );
    let mut small = claims.clone();
    small[0].demand.size_milli = 1;
    let too_small = storage(&small, &[volume("v", "a")], class(false, Vec::new()));
    assert_eq!(
        reasons(&index, &too_small, &["one"]),
        [&*none[0], &*none[0]]
    );
    let mut held = volume("v", "a");
    held.claim = Some("ns/other".into());
    let taken = storage(&claims, &[held.clone()], class(false, Vec::new()));
    assert_eq!(reasons(&index, &taken, &["one"]), [&*none[0], &*none[0]]);
    held.claim = Some("ns/one".into());
    let own = storage(&claims, &[held], class(false, Vec::new()));
    assert_eq!(reasons(&index, &own, &["one"]), ["", &*none[0]]);
}

#[test]
fn claims_that_fit_no_node() {
    let mut index = Index::default();
    let waiting = || class(true, Vec::new());
    let everywhere = |claim: VolumeClaim, class| {
        let storage = storage(std::slice::from_ref(&claim), &[], class);
        let [a, b] = reasons(&Index::default(), &storage, &[&claim.name]);
        assert_eq!(a, b);
        a
    };
    let absent = reasons(&index, &storage(&[], &[], waiting()), &["data"]);
    assert_eq!(absent, ["PersistentVolumeClaim data does not exist"; 2]);
    let immediate = || StorageClass {
        waits_for_pod: false,
        ..waiting()
    };
    let unbound = "PersistentVolumeClaim data is not bound yet";
    assert_eq!(everywhere(claim("data", None), immediate()), unbound);
    let without_class = VolumeClaim {
        class: Some("".into()),
        ..claim("data", None)
    };
    assert_eq!(everywhere(without_class, waiting()), unbound);
    let new = VolumeClaim {
        is_observed: false,
        ..claim("data", None)
    };
    assert_eq!(everywhere(new, immediate()), "");
    let lost = VolumeClaim {
        is_unusable: true,
        ..claim("data", Some("v"))
    };
    let text = "PersistentVolumeClaim data is lost or being deleted";
    assert_eq!(everywhere(lost, waiting()), text);

    let exclusive = VolumeClaim {
        demand: VolumeDemand {
            access_modes: vec![ONE_POD.into()],
            ..VolumeDemand::default()
        },
        ..claim("data", None)
    };
    let storage = storage(&[exclusive], &[], waiting());
    assert_eq!(reasons(&index, &storage, &["data"]), ["", ""]);
    index.apply(Object::PodVolumes(volumes("there", &["data"])));
    index.apply(Object::Pod(Pod {
        namespace: "ns".into(),
        name: "there".into(),
        node: Some("n".into()),
        ..Pod::default()
    }));
    let used = "PersistentVolumeClaim data is used by another pod (ReadWriteOncePod)";
    assert_eq!(reasons(&index, &storage, &["data"]), [used; 2]);
}
