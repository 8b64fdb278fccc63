//! Builds the changes by which a container sees its own cards and no others. The functions are
//! pure.

use std::collections::BTreeMap;

use crate::{assignment::Part, limits::LimitEdits};

/// The variable that names a container's cards for NVIDIA's runtime.
pub(crate) const VISIBLE: &str = "NVIDIA_VISIBLE_DEVICES";
/// The value of [`VISIBLE`] with which NVIDIA's runtime adds nothing.
pub(crate) const VOID: &str = "void";

/// The changes to a container, in the terms of CDI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injection {
    /// The environment variables, which replace those of the image and the pod.
    pub env: BTreeMap<String, String>,
    /// The device nodes.
    pub devices: Vec<Device>,
    /// The bind mounts.
    pub mounts: Vec<Mount>,
    /// The OCI hooks of a CDI spec.
    pub hooks: Vec<Hook>,
}

/// A device node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The path in the container.
    pub path: String,
    /// The path on the host.
    pub host_path: String,
    /// The type and numbers; `None` takes those of the node at `host_path`.
    pub node: Option<DeviceNode>,
    /// The permissions of the device cgroup, out of `r`, `w` and `m`; `None` grants all.
    pub permissions: Option<String>,
    /// The mode bits; `None` leaves the runtime's default.
    pub file_mode: Option<u32>,
    /// The owner's user ID in the container; `None` leaves the runtime's default.
    pub uid: Option<u32>,
    /// The group ID in the container; `None` leaves the runtime's default.
    pub gid: Option<u32>,
}

/// The type and numbers of a device node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    /// The type: `c`, `b` or `p`.
    pub kind: String,
    /// The major number.
    pub major: i64,
    /// The minor number.
    pub minor: i64,
}

/// A bind mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The path on the host.
    pub host_path: String,
    /// The path in the container.
    pub container_path: String,
    /// The mount options, such as `ro`, `nosuid` and `bind`.
    pub options: Vec<String>,
}

/// An OCI hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// The stage at which the hook runs, in CDI's spelling, such as `createContainer`.
    pub name: String,
    /// The path of the program on the host.
    pub path: String,
    /// The arguments; the first is the program's name.
    pub args: Vec<String>,
    /// The environment variables, as `KEY=VALUE`.
    pub env: Vec<String>,
}

impl Injection {
    /// Adds the changes of `other` that are missing. Its variables replace those of the same name.
    pub(crate) fn extend(&mut self, other: Self) {
        self.env.extend(other.env);
        add(&mut self.devices, other.devices);
        add(&mut self.mounts, other.mounts);
        add(&mut self.hooks, other.hooks);
    }
}

fn add<T: PartialEq>(to: &mut Vec<T>, from: Vec<T>) {
    for item in from {
        if !to.contains(&item) {
            to.push(item);
        }
    }
}

/// Returns the changes for a container with these cards: the edits of their CDI devices, or else
/// the variable that NVIDIA's runtime obeys, and the container's limits.
pub(crate) fn inject(parts: &[Part], cdi: Option<Injection>, limits: LimitEdits) -> Injection {
    let visible = match &cdi {
        None if !parts.is_empty() => {
            let uuids: Vec<&str> = parts.iter().map(|(card, _)| card.uuid.as_str()).collect();
            uuids.join(",")
        }
        _ => VOID.to_owned(),
    };
    let mut injection = cdi.unwrap_or_default();
    injection.extend(Injection {
        env: limits.env,
        mounts: limits.mounts,
        ..Injection::default()
    });
    injection.env.insert(VISIBLE.to_owned(), visible);
    injection
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tautline_gpu_placement::node_inventory::InventoryCard;

    use super::*;

    fn part(uuid: &str) -> Part {
        let uuid = uuid.to_owned();
        let card = InventoryCard {
            uuid,
            ..InventoryCard::default()
        };
        (card, 250)
    }

    fn env(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = list.iter();
        pairs
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn cdi_edits_turn_nvidias_runtime_off() {
        let device = Device {
            path: "/dev/nvidia3".to_owned(),
            ..Device::default()
        };
        let cdi = Injection {
            env: env(&[("NVIDIA_VISIBLE_DEVICES", "all"), ("A", "1")]),
            devices: vec![device.clone()],
            ..Injection::default()
        };
        let limits = LimitEdits {
            env: env(&[("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25")]),
            ..LimitEdits::default()
        };
        let got = inject(&[part("GPU-a")], Some(cdi), limits);
        let expected = env(&[
            ("A", "1"),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25"),
            ("NVIDIA_VISIBLE_DEVICES", "void"),
        ]);
        assert_eq!((got.env, got.devices), (expected, vec![device]));
    }

    proptest! {
        #[test]
        fn without_cdi_just_the_given_cards_are_visible(
            uuids in prop::collection::btree_set("GPU-[0-9a-f]{4}", 0..5),
            forged in "[A-Za-z0-9,-]{0,12}",
        ) {
            let parts: Vec<Part> = uuids.iter().map(|u| part(u)).collect();
            let limits = LimitEdits { env: env(&[(VISIBLE, &forged)]), ..LimitEdits::default() };
            let got = inject(&parts, None, limits);
            let list: Vec<String> = uuids.into_iter().collect();
            let expected = if list.is_empty() { VOID.to_owned() } else { list.join(",") };
            prop_assert_eq!(got.env.get(VISIBLE), Some(&expected));
            prop_assert!(got.devices.is_empty());
        }
    }
}
