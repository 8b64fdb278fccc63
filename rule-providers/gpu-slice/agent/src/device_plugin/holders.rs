//! Finds the container that holds a set of device IDs. The functions are pure.

use std::collections::{BTreeSet, HashSet};

use super::{allocations::Allocations, checkpoint::Entry, ids::Counted};
use crate::{kubelet::pod_resources::ContainerResources, pods::PodRef};

/// The containers that hold a set of device IDs, and their pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub pod: PodRef,
    /// The names of the containers; several if an init container's IDs pass on to a later
    /// container.
    pub containers: BTreeSet<String>,
    /// True if one of the containers also holds IDs of the other resource.
    pub both: bool,
}

/// Returns the holder of exactly these `ids` of a resource. A container that holds only some of
/// these IDs still identifies the pod, since IDs pass only between containers of the same pod.
pub(crate) fn holder(
    allocations: &Allocations,
    counted: Counted,
    ids: &[String],
) -> Option<Holder> {
    let ids: HashSet<&str> = ids.iter().map(String::as_str).collect();
    let (resource, other) = (counted.resource(), counted.other().resource());
    let mut named = None;
    let mut containers = BTreeSet::new();
    let mut both = false;
    for pod in &allocations.listed {
        for container in &pod.containers {
            let mut all = 0;
            let shared = held_by(container, resource)
                .inspect(|_| all += 1)
                .filter(|id| ids.contains(id))
                .count();
            if shared == 0 {
                continue;
            }
            named = Some(PodRef::Name {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
            });
            if (shared, all) == (ids.len(), ids.len()) {
                containers.insert(container.name.clone());
                both |= held_by(container, other).next().is_some();
            }
        }
    }
    let exact = |entry: &&Entry| {
        entry.resource == resource
            && entry.ids.len() == ids.len()
            && entry.ids.iter().all(|id| ids.contains(id.as_str()))
    };
    let recorded: Vec<&Entry> = allocations.recorded.iter().filter(exact).collect();
    for entry in &recorded {
        containers.insert(entry.container.clone());
        both |= allocations.recorded.iter().any(|e| {
            e.resource == other && e.pod_uid == entry.pod_uid && e.container == entry.container
        });
    }
    if containers.is_empty() {
        return None;
    }
    let first = recorded.first();
    // The UID is preferred, since a recreated pod has the same name as the old one.
    let by_uid = first.map(|entry| PodRef::Uid(entry.pod_uid.clone()));
    Some(Holder {
        pod: by_uid.or(named)?,
        containers,
        both,
    })
}

/// Returns the container's IDs of a resource; the kubelet lists each ID in a separate part.
pub(crate) fn held_by<'a>(
    container: &'a ContainerResources,
    resource: &str,
) -> impl Iterator<Item = &'a str> {
    let parts = container.devices.iter();
    let parts = parts.filter(move |part| part.resource_name == resource);
    parts.flat_map(|part| part.device_ids.iter().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use crate::kubelet::pod_resources::{ContainerDevices, PodResources};

    use super::*;

    const MILLI: &str = "tautline.io/gpu-milli";
    const MEMORY: &str = "tautline.io/gpu-memory";

    fn listed(name: &str, containers: &[(&str, &[(&str, &str)])]) -> PodResources {
        let containers = containers.iter().map(|(name, devices)| ContainerResources {
            name: (*name).to_owned(),
            devices: devices
                .iter()
                .map(|(resource, id)| ContainerDevices {
                    resource_name: (*resource).to_owned(),
                    device_ids: vec![(*id).to_owned()],
                })
                .collect(),
        });
        PodResources {
            name: name.to_owned(),
            namespace: "ml".to_owned(),
            containers: containers.collect(),
        }
    }

    fn recorded(container: &str, resource: &str, ids: &[&str]) -> Entry {
        Entry {
            pod_uid: "u".to_owned(),
            container: container.to_owned(),
            resource: resource.to_owned(),
            ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        }
    }

    fn find(pods: &[PodResources], entries: &[Entry], ids: &[&str]) -> Option<Holder> {
        let allocations = Allocations {
            listed: pods.to_vec(),
            recorded: entries.to_vec(),
        };
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        holder(&allocations, Counted::Milli, &ids)
    }

    fn ml(name: &str) -> PodRef {
        PodRef::Name {
            namespace: "ml".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn holder_is_the_container_with_all_ids() {
        let pods = [
            listed("a", &[("main", &[(MILLI, "m1"), (MILLI, "m2")])]),
            listed(
                "b",
                &[
                    ("side", &[(MILLI, "m3")]),
                    ("main", &[(MILLI, "m5"), (MEMORY, "g1"), (MILLI, "m4")]),
                ],
            ),
        ];
        let found = find(&pods, &[], &["m4", "m5"]).unwrap();
        assert_eq!((found.pod, found.both), (ml("b"), true));
        assert_eq!(found.containers, BTreeSet::from(["main".to_owned()]));
        assert!(!find(&pods, &[], &["m1", "m2"]).unwrap().both);
        assert_eq!(find(&pods, &[], &["m9"]), None);
        assert_eq!(find(&pods, &[], &["m4"]), None);
    }

    #[test]
    fn init_container_is_found_by_the_checkpoint() {
        let pods = [listed("a", &[("main", &[(MILLI, "m1")])])];
        let entries = [
            recorded("setup", MILLI, &["m1", "m2"]),
            recorded("setup", MEMORY, &["g1"]),
            recorded("main", MILLI, &["m1"]),
        ];
        let found = find(&pods, &entries, &["m2", "m1"]).unwrap();
        let uid = || PodRef::Uid("u".to_owned());
        assert_eq!((found.pod, found.both), (uid(), true));
        assert_eq!(found.containers, BTreeSet::from(["setup".to_owned()]));
        // Nobody that is listed shares its IDs.
        let found = find(&[], &entries, &["m2", "m1"]).unwrap();
        assert_eq!(found.pod, uid());
    }

    #[test]
    fn checkpoint_names_the_pod_even_if_its_name_is_listed() {
        let pods = [listed("a", &[("main", &[(MILLI, "m1")])])];
        let found = find(&pods, &[recorded("main", MILLI, &["m1"])], &["m1"]).unwrap();
        assert_eq!(found.pod, PodRef::Uid("u".to_owned()));
    }

    #[test]
    fn equal_ids_of_an_init_container_name_both() {
        let pods = [listed("a", &[("main", &[(MILLI, "m1")])])];
        let entries = [
            recorded("setup", MILLI, &["m1"]),
            recorded("main", MILLI, &["m1"]),
        ];
        let found = find(&pods, &entries, &["m1"]).unwrap();
        assert_eq!(found.containers.len(), 2);
        assert!(!found.both);
    }
}
