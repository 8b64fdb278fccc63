//! The format of CDI spec files, with the fields that the agent passes on:
//! <https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A spec: devices of one kind, and edits for every container that gets such a device.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    pub cdi_version: String,
    pub kind: String,
    pub devices: Vec<SpecDevice>,
    #[serde(skip_serializing_if = "Edits::is_empty")]
    pub container_edits: Edits,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SpecDevice {
    pub name: String,
    pub container_edits: Edits,
}

/// The changes to a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Edits {
    /// The environment variables, which replace those of the image and the pod.
    #[serde(with = "pairs", skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
}

/// A device node; the runtime takes what is left out from the node at `host_path`, or else `path`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeviceNode {
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minor: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

/// A bind mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Mount {
    pub host_path: String,
    pub container_path: String,
    /// The mount options, such as `ro`, `nosuid` and `bind`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// An OCI hook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Hook {
    pub hook_name: String,
    pub path: String,
    /// The arguments; the first is the program's name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
}

impl Edits {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the changes of `other` that are missing. Its variables replace those of the same name.
    pub fn extend(&mut self, other: Self) {
        self.env.extend(other.env);
        add(&mut self.device_nodes, other.device_nodes);
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

/// Reads and writes variables as a list of `NAME=VALUE`.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(
        env: &BTreeMap<String, String>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(env.iter().map(|(name, value)| format!("{name}={value}")))
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(
        from: D,
    ) -> Result<BTreeMap<String, String>, D::Error> {
        let pairs = Vec::<String>::deserialize(from)?;
        let pairs = pairs.iter().filter_map(|pair| pair.split_once('='));
        Ok(pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
    }
}
