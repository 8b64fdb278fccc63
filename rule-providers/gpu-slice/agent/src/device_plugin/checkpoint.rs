//! Reads the kubelet's checkpoint, a file that lists device IDs by container. It includes init
//! containers, which the PodResources API leaves out. Its format is not an API; if it cannot be
//! read, only the devices of init containers are unknown.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    path::Path,
};

use serde::Deserialize;
use tokio::fs;

const MAX_CHECKPOINT_BYTES: u64 = 64 << 20;

/// The device IDs of one resource that a container holds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "RawEntry")]
pub(crate) struct Entry {
    pub pod_uid: String,
    pub container: String,
    pub resource: String,
    pub ids: Vec<String>,
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "Data")]
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "PodDeviceEntries", default)]
    entries: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawEntry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    container_name: String,
    resource_name: String,
    /// The IDs by NUMA node.
    #[serde(rename = "DeviceIDs")]
    device_ids: Option<BTreeMap<String, Option<Vec<String>>>>,
}

impl From<RawEntry> for Entry {
    fn from(raw: RawEntry) -> Self {
        let by_numa = raw.device_ids.unwrap_or_default().into_values();
        Self {
            pod_uid: raw.pod_uid,
            container: raw.container_name,
            resource: raw.resource_name,
            ids: by_numa.flatten().flatten().collect(),
        }
    }
}

/// Returns the checkpoint's entries for Tautline's resources; empty without a checkpoint, which
/// means that no container of the node has had devices.
pub(crate) async fn read(path: &Path) -> io::Result<Vec<Entry>> {
    let bytes = match fs::metadata(path).await {
        Ok(file) if file.len() > MAX_CHECKPOINT_BYTES => {
            return Err(io::Error::other(format!("it has {} bytes", file.len())));
        }
        Ok(_) => fs::read(path).await?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    Ok(parse(&bytes)?)
}

fn parse(bytes: &[u8]) -> serde_json::Result<Vec<Entry>> {
    let file: File = serde_json::from_slice(bytes)?;
    let mut entries = file.data.entries.unwrap_or_default();
    entries.retain(|entry| entry.resource.starts_with("tautline.io/"));
    Ok(entries)
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// As the kubelet writes it.
    pub fn render(entries: &[Entry]) -> Vec<u8> {
        let entries = entries.iter().map(|entry| {
            json!({
                "PodUID": entry.pod_uid,
                "ContainerName": entry.container,
                "ResourceName": entry.resource,
                "DeviceIDs": {"-1": entry.ids},
                "AllocResp": "Gg==",
            })
        });
        let entries: Vec<_> = entries.collect();
        let file = json!({
            "Data": {"PodDeviceEntries": entries, "RegisteredDevices": {"a/b": ["x"]}},
            "Checksum": 1_234_567,
        });
        serde_json::to_vec(&file).unwrap()
    }

    #[test]
    fn parse_reads_what_the_kubelet_writes() {
        let entries = [Entry {
            pod_uid: "u".to_owned(),
            container: "main".to_owned(),
            resource: "tautline.io/gpu-milli".to_owned(),
            ids: vec!["m1".to_owned(), "m2".to_owned()],
        }];
        assert_eq!(parse(&render(&entries)).unwrap(), entries);
    }

    #[test]
    fn parse_takes_nulls_and_leaves_others_out() {
        let none = br#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}"#;
        assert_eq!(parse(none).unwrap(), []);
        let other = br#"{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c",
            "ResourceName":"nvidia.com/gpu","DeviceIDs":{"0":["a"],"1":null},"AllocResp":"%"}]}}"#;
        assert_eq!(parse(other).unwrap(), []);
        assert!(parse(b"{}").is_err());
    }
}
