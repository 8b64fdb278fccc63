//! The format of CDI spec files, with the fields that the agent uses:
//! <https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>

use serde::{Deserialize, Serialize};

use crate::injection::{Device, DeviceNode, Hook, Injection, Mount};

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

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Edits {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    device_nodes: Vec<Node>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<SpecHook>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<SpecMount>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Node {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_path: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    major: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minor: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_mode: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gid: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecMount {
    host_path: String,
    container_path: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    options: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecHook {
    hook_name: String,
    path: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
}

impl Edits {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Converts the edits to an injection.
    pub fn injection(&self) -> Injection {
        let env = self.env.iter().filter_map(|pair| pair.split_once('='));
        Injection {
            env: env.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            devices: self.device_nodes.iter().cloned().map(device).collect(),
            mounts: self.mounts.iter().cloned().map(mount).collect(),
            hooks: self.hooks.iter().cloned().map(hook).collect(),
        }
    }

    /// Converts an injection to edits.
    pub fn of(injection: &Injection) -> Self {
        let env = injection.env.iter();
        Self {
            env: env.map(|(k, v)| format!("{k}={v}")).collect(),
            device_nodes: injection.devices.iter().cloned().map(node).collect(),
            hooks: injection.hooks.iter().cloned().map(spec_hook).collect(),
            mounts: injection.mounts.iter().cloned().map(spec_mount).collect(),
        }
    }
}

fn device(node: Node) -> Device {
    Device {
        host_path: node.host_path.unwrap_or_else(|| node.path.clone()),
        path: node.path,
        node: match (node.kind, node.major, node.minor) {
            (Some(kind), Some(major), Some(minor)) if kind != "u" => {
                Some(DeviceNode { kind, major, minor })
            }
            _ => None,
        },
        permissions: node.permissions,
        file_mode: node.file_mode,
        uid: node.uid,
        gid: node.gid,
    }
}

fn node(device: Device) -> Node {
    let (kind, major, minor) = match device.node {
        Some(DeviceNode { kind, major, minor }) => (Some(kind), Some(major), Some(minor)),
        None => (None, None, None),
    };
    Node {
        host_path: (device.host_path != device.path).then_some(device.host_path),
        path: device.path,
        kind,
        major,
        minor,
        file_mode: device.file_mode,
        permissions: device.permissions,
        uid: device.uid,
        gid: device.gid,
    }
}

fn mount(of: SpecMount) -> Mount {
    Mount {
        host_path: of.host_path,
        container_path: of.container_path,
        options: of.options,
    }
}

fn spec_mount(of: Mount) -> SpecMount {
    SpecMount {
        host_path: of.host_path,
        container_path: of.container_path,
        options: of.options,
    }
}

fn hook(of: SpecHook) -> Hook {
    Hook {
        name: of.hook_name,
        path: of.path,
        args: of.args,
        env: of.env,
    }
}

fn spec_hook(of: Hook) -> SpecHook {
    SpecHook {
        hook_name: of.name,
        path: of.path,
        args: of.args,
        env: of.env,
    }
}
