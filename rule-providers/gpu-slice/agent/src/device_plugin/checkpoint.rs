//! Reads the kubelet's checkpoint, a file that lists device IDs by container. It includes init
//! containers, which the PodResources API leaves out. Its format is not an API; if it cannot be
//! read, only the devices of init containers are unknown.

use std::{collections::BTreeMap, io::ErrorKind, path::Path};

use serde::Deserialize;
use tokio::fs;

const MAX_CHECKPOINT_BYTES: u64 = 64 << 20;

/// The device IDs of one resource that a container holds.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    entries: Option<Vec<RawEntry>>,
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

/// Returns the checkpoint's entries for Tautline's resources; `plugins` is the kubelet's directory
/// of device plugins.
pub(crate) async fn read(plugins: &Path) -> Result<Vec<Entry>, String> {
    let path = plugins.join("kubelet_internal_checkpoint");
    let wrong = |error: String| format!("{} does not read: {error}", path.display());
    let size = match fs::metadata(&path).await {
        Ok(size) => size,
        // No container of the node has had devices.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(wrong(error.to_string())),
    };
    if size.len() > MAX_CHECKPOINT_BYTES {
        return Err(wrong(format!("it has {} bytes", size.len())));
    }
    let bytes = fs::read(&path).await.map_err(|e| wrong(e.to_string()))?;
    parse(&bytes).map_err(wrong)
}

fn parse(bytes: &[u8]) -> Result<Vec<Entry>, String> {
    let file: File = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    let entries = file.data.entries.unwrap_or_default().into_iter();
    let own = entries.filter(|raw| raw.resource_name.starts_with("tautline.io/"));
    Ok(own.map(entry).collect())
}

fn entry(raw: RawEntry) -> Entry {
    let by_numa = raw.device_ids.unwrap_or_default().into_values();
    Entry {
        pod_uid: raw.pod_uid,
        container: raw.container_name,
        resource: raw.resource_name,
        ids: by_numa.flatten().flatten().collect(),
    }
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
