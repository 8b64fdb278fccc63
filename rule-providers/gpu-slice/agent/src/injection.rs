//! What a container gets so that it sees its cards and no others. Pure.

use std::collections::BTreeMap;

use crate::{assignment::Part, limits::LimitEdits};

/// Names the cards for NVIDIA's runtime; `void` is none.
pub(crate) const VISIBLE: &str = "NVIDIA_VISIBLE_DEVICES";
/// The value of [`VISIBLE`] with which NVIDIA's runtime adds nothing.
pub(crate) const VOID: &str = "void";

/// Changes of a container, by CDI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injection {
    /// Variables, in place of those of the image and the pod.
    pub env: BTreeMap<String, String>,
    /// Device nodes.
    pub devices: Vec<Device>,
    /// Bind mounts.
    pub mounts: Vec<Mount>,
    /// OCI hooks of a CDI spec.
    pub hooks: Vec<Hook>,
}

/// A device node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Path in the container.
    pub path: String,
    /// Path on the host.
    pub host_path: String,
    /// Kind and numbers; `None`: those of the node at `host_path`.
    pub node: Option<DeviceNode>,
    /// Of `r`, `w` and `m`; `None`: all.
    pub permissions: Option<String>,
    /// Mode bits; `None`: the runtime's default.
    pub file_mode: Option<u32>,
    /// Owner in the container; `None`: the runtime's default.
    pub uid: Option<u32>,
    /// Group in the container; `None`: the runtime's default.
    pub gid: Option<u32>,
}

/// What a device node stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    /// `c`, `b` or `p`.
    pub kind: String,
    /// Major number.
    pub major: i64,
    /// Minor number.
    pub minor: i64,
}

/// A bind mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Path on the host.
    pub host_path: String,
    /// Path in the container.
    pub container_path: String,
    /// Options of mount, such as `ro`, `nosuid`, `bind`.
    pub options: Vec<String>,
}

/// An OCI hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// `createContainer`, as CDI has it.
    pub name: String,
    /// Program on the host.
    pub path: String,
    /// Arguments, the first is the program's name.
    pub args: Vec<String>,
    /// Variables, `KEY=VALUE`.
    pub env: Vec<String>,
}

impl Injection {
    /// Adds what is not there yet. Variables of `other` win.
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

/// What a container with these cards gets: the edits of their CDI devices, else the variable that
/// NVIDIA's runtime obeys; and its limits.
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
