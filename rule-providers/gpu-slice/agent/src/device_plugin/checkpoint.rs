//! The kubelet's own file of device IDs by container. It has what the PodResources API leaves out:
//! init containers, and what Allocate answered. Its format is not an API: if it does not read, only
//! these two are unknown.

use std::{collections::BTreeMap, io::ErrorKind, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use prost::Message;
use serde::Deserialize;
use tautline_node_proto::device_plugin::ContainerAllocateResponse;
use tokio::fs;

const MOST_BYTES: u64 = 64 << 20;

/// A container's IDs of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub pod_uid: String,
    pub container: String,
    pub resource: String,
    pub ids: Vec<String>,
    /// The CDI devices that Allocate answered.
    pub cdi_devices: Vec<String>,
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
    /// By NUMA node.
    #[serde(rename = "DeviceIDs")]
    device_ids: Option<BTreeMap<String, Option<Vec<String>>>>,
    /// A `ContainerAllocateResponse` in base64.
    alloc_resp: Option<String>,
}

/// Entries of the kubelet's file in its folder of device plugins.
pub(crate) async fn read(plugins: &Path) -> Result<Vec<Entry>, String> {
    let path = plugins.join("kubelet_internal_checkpoint");
    let wrong = |error: String| format!("{} does not read: {error}", path.display());
    let size = match fs::metadata(&path).await {
        Ok(size) => size,
        // No container of the node has had devices.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(wrong(error.to_string())),
    };
    if size.len() > MOST_BYTES {
        return Err(wrong(format!("it has {} bytes", size.len())));
    }
    let bytes = fs::read(&path).await.map_err(|e| wrong(e.to_string()))?;
    parse(&bytes).map_err(wrong)
}

fn parse(bytes: &[u8]) -> Result<Vec<Entry>, String> {
    let file: File = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    file.data
        .entries
        .unwrap_or_default()
        .into_iter()
        .filter(|raw| raw.resource_name.starts_with("tautline.io/"))
        .map(entry)
        .collect()
}

fn entry(raw: RawEntry) -> Result<Entry, String> {
    let answer = BASE64_STANDARD
        .decode(raw.alloc_resp.unwrap_or_default())
        .map_err(|e| format!("AllocResp: {e}"))?;
    let answer = ContainerAllocateResponse::decode(answer.as_slice())
        .map_err(|e| format!("AllocResp: {e}"))?;
    let by_numa = raw.device_ids.unwrap_or_default().into_values();
    Ok(Entry {
        pod_uid: raw.pod_uid,
        container: raw.container_name,
        resource: raw.resource_name,
        ids: by_numa.flatten().flatten().collect(),
        cdi_devices: answer.cdi_devices.into_iter().map(|d| d.name).collect(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// As the kubelet writes it.
    pub fn render(entries: &[Entry]) -> Vec<u8> {
        let entries = entries.iter().map(|entry| {
            let cdi_devices = entry.cdi_devices.iter().cloned();
            let answer = ContainerAllocateResponse {
                cdi_devices: cdi_devices
                    .map(|name| tautline_node_proto::device_plugin::CdiDevice { name })
                    .collect(),
                ..ContainerAllocateResponse::default()
            };
            json!({
                "PodUID": entry.pod_uid,
                "ContainerName": entry.container,
                "ResourceName": entry.resource,
                "DeviceIDs": {"-1": entry.ids},
                "AllocResp": BASE64_STANDARD.encode(answer.encode_to_vec()),
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
            cdi_devices: vec!["tautline.io/gpu=t".to_owned()],
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
