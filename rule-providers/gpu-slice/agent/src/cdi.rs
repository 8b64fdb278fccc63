//! The CDI specs on the node: those that describe the cards, and those that the agent writes.

mod own;
mod spec;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use spec::Spec;
pub(crate) use {
    own::{OWN_KIND, OwnSpecs},
    spec::{Edits, Mount},
};

use crate::assignment::Part;

/// The variable that names a container's cards for NVIDIA's runtime.
pub(crate) const VISIBLE: &str = "NVIDIA_VISIBLE_DEVICES";
/// The value of [`VISIBLE`] with which NVIDIA's runtime adds nothing.
pub(crate) const VOID: &str = "void";
const KIND: &str = "nvidia.com/gpu";
/// The largest spec that is read, in bytes; a spec of 16 cards has some 200 kB.
const MAX_SPEC_BYTES: u64 = 4 << 20;
/// The largest number of specs that are read from a directory.
const MAX_SPECS_PER_DIR: usize = 256;

/// The directories of the cards' specs; a spec in a later directory wins.
#[derive(Debug)]
pub(crate) struct CardSpecs(pub Vec<PathBuf>);

impl CardSpecs {
    /// Returns the combined edits for the cards; `None` if no spec names one of the cards by UUID.
    /// Names by index do not count, since an index may mean another card after a card is lost.
    pub fn edits(&self, parts: &[Part]) -> Option<Edits> {
        let specs = self.read();
        let mut common = BTreeMap::new();
        let mut devices = Edits::default();
        for (card, _) in parts {
            let (at, device) = specs.iter().enumerate().find_map(|(at, spec)| {
                let mut devices = spec.devices.iter();
                Some((at, devices.find(|device| device.name == card.uuid)?))
            })?;
            common.insert(at, specs[at].container_edits.clone());
            devices.extend(device.container_edits.clone());
        }
        let mut all = Edits::default();
        for edits in common.into_values().chain([devices]) {
            all.extend(edits);
        }
        Some(all)
    }

    /// Returns the specs, those with the highest priority first.
    fn read(&self) -> Vec<Spec> {
        let files = self.0.iter().rev().flat_map(|dir| spec_files(dir));
        let spec = |path: PathBuf| {
            read_spec(&path).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "a CDI spec cannot be read");
                None
            })
        };
        files.filter_map(spec).collect()
    }
}

fn spec_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            !own::is_own(path) && matches!(extension(path), Some("json" | "yaml" | "yml"))
        })
        .take(MAX_SPECS_PER_DIR)
        .collect();
    files.sort();
    files
}

fn extension(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}

/// Returns the spec; `None` if the file is not a spec of cards.
fn read_spec(path: &Path) -> io::Result<Option<Spec>> {
    let Some(metadata) = fs::metadata(path).ok().filter(fs::Metadata::is_file) else {
        return Ok(None);
    };
    if metadata.len() > MAX_SPEC_BYTES {
        return Err(io::Error::other(format!(
            "it has more than {MAX_SPEC_BYTES} bytes"
        )));
    }
    let text = fs::read_to_string(path)?;
    let spec: Spec = if extension(path) == Some("json") {
        serde_json::from_str(&text).map_err(io::Error::other)?
    } else {
        serde_saphyr::from_str(&text).map_err(io::Error::other)?
    };
    Ok((spec.kind == KIND).then_some(spec))
}

#[cfg(test)]
mod tests {
    use tautline_gpu_placement::node_inventory::InventoryCard;

    use super::*;

    const JSON: &str = r#"{
        "cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "annotations": {"x": "y"},
        "devices": [
            {"name": "GPU-a", "containerEdits": {"deviceNodes": [
                {"path": "/dev/nvidia0", "hostPath": "/dev/nvidia7", "permissions": "rw"}]}},
            {"name": "GPU-b", "containerEdits": {"deviceNodes": [
                {"path": "/dev/nvidia1", "type": "c", "major": 195, "minor": 1}]}},
            {"name": "2", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia2"}]}},
            {"name": "all", "containerEdits": {"deviceNodes": [
                {"path": "/dev/nvidia0"}, {"path": "/dev/nvidia1"}]}}
        ],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void", "A=b=c"],
            "deviceNodes": [{"path": "/dev/nvidiactl"}],
            "mounts": [{"hostPath": "/lib/libcuda.so", "containerPath": "/lib/libcuda.so",
                "options": ["ro", "bind"]}],
            "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook",
                "args": ["nvidia-cdi-hook", "update-ldcache"]}],
            "additionalGids": [44]
        }
    }"#;

    fn part(uuid: &str, index: u32) -> Part {
        let uuid = uuid.to_owned();
        let card = InventoryCard {
            uuid,
            index,
            ..InventoryCard::default()
        };
        (card, 1000)
    }

    fn paths(edits: &Edits) -> Vec<&str> {
        edits.device_nodes.iter().map(|d| d.path.as_str()).collect()
    }

    #[test]
    fn cards_are_found_by_uuid_only() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("nvidia.json"), JSON).unwrap();
        let specs = CardSpecs(vec![dir.path().into()]);
        let both = specs.edits(&[part("GPU-a", 5), part("GPU-b", 1)]).unwrap();
        assert_eq!(
            paths(&both),
            ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"]
        );
        assert_eq!(
            both.device_nodes[1].host_path.as_deref(),
            Some("/dev/nvidia7")
        );
        assert_eq!(both.device_nodes[2].major, Some(195));
        assert_eq!(both.env["A"], "b=c");
        assert_eq!(both.hooks.len(), 1);
        assert_eq!(both.mounts[0].options, ["ro", "bind"]);
        assert_eq!(specs.edits(&[part("GPU-c", 2)]), None);
    }

    #[test]
    fn later_folders_win_and_changes_are_seen() {
        let (etc, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let specs = CardSpecs(vec![etc.path().into(), run.path().into()]);
        let card = [part("GPU-a", 0)];
        assert_eq!(specs.edits(&card), None);
        fs::write(etc.path().join("nvidia.json"), JSON).unwrap();
        let other = JSON.replace("/dev/nvidia0", "/dev/nvidia9");
        let yaml = "kind: nvidia.com/gpu\ncdiVersion: 0.3.0\ndevices:\n- name: GPU-a\n  \
            containerEdits:\n    deviceNodes:\n    - path: /dev/from-yaml\n      fileMode: 438\n";
        fs::write(run.path().join("broken.json"), "{").unwrap();
        fs::write(
            run.path().join("other.json"),
            JSON.replace("nvidia.com/gpu", "x.com/gpu"),
        )
        .unwrap();
        assert_eq!(
            paths(&specs.edits(&card).unwrap()),
            ["/dev/nvidiactl", "/dev/nvidia0"]
        );
        fs::write(run.path().join("nvidia.yaml"), yaml).unwrap();
        assert_eq!(paths(&specs.edits(&card).unwrap()), ["/dev/from-yaml"]);
        fs::remove_file(run.path().join("nvidia.yaml")).unwrap();
        fs::write(etc.path().join("nvidia.json"), other + " ").unwrap();
        assert_eq!(
            paths(&specs.edits(&card).unwrap()),
            ["/dev/nvidiactl", "/dev/nvidia9"]
        );
    }
}
