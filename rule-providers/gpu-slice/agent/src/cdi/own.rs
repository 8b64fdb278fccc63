//! The CDI specs that the agent writes: one file with one device, which a token names, for each
//! container that requests cards.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::spec::{Edits, Spec, SpecDevice};
use crate::whole_file;

/// The kind of the agent's devices.
pub(crate) const OWN_KIND: &str = "tautline.io/gpu";
const PREFIX: &str = "tautline.io-gpu-";
const SUFFIX: &str = ".json";
/// The oldest CDI version in which device nodes have a `hostPath`.
const VERSION: &str = "0.5.0";

/// The agent's specs in a directory that the container runtime reads.
#[derive(Clone, Debug)]
pub(crate) struct OwnSpecs {
    dir: PathBuf,
}

impl OwnSpecs {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn path(&self, token: &str) -> PathBuf {
        self.dir.join(format!("{PREFIX}{token}{SUFFIX}"))
    }

    /// Returns whether there are any specs.
    pub fn exist(&self) -> bool {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).any(|path| is_own(&path))
    }

    /// Writes the spec of a container, and replaces an older one.
    pub fn write(&self, token: &str, container_edits: Edits) -> io::Result<()> {
        let spec = Spec {
            cdi_version: VERSION.to_owned(),
            kind: OWN_KIND.to_owned(),
            devices: vec![SpecDevice {
                name: token.to_owned(),
                container_edits,
            }],
            container_edits: Edits::default(),
        };
        whole_file::write(&self.path(token), &spec)
    }

    /// Removes the spec, if there is one.
    pub fn remove(&self, token: &str) -> io::Result<()> {
        match fs::remove_file(self.path(token)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Removes all specs whose tokens begin with these characters.
    pub fn remove_all(&self, start: &str) -> io::Result<()> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if name(&path).is_some_and(|name| name.starts_with(&format!("{PREFIX}{start}"))) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Removes the specs that are at least `age` old and whose token is not in `live`, except those
    /// of claims.
    pub fn sweep(&self, live: &HashSet<String>, age: Duration) -> io::Result<()> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let stays = |token: &str| token.starts_with("claim-") || live.contains(token);
            if !is_own(&path) || token(&path).is_some_and(stays) {
                continue;
            }
            let modified = fs::metadata(&path).and_then(|m| m.modified());
            let old = modified.is_ok_and(|at| at.elapsed().is_ok_and(|now| now >= age));
            if old {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// Returns whether the file is one of the agent's specs, including half-written ones.
pub(super) fn is_own(path: &Path) -> bool {
    name(path).is_some_and(|name| name.starts_with(PREFIX))
}

fn token(path: &Path) -> Option<&str> {
    name(path)?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cdi::spec::{DeviceNode, Hook, Mount};

    #[test]
    fn write_makes_a_spec_with_one_device() {
        let dir = tempfile::tempdir().unwrap();
        let specs = OwnSpecs::new(dir.path().join("cdi"));
        let edits = Edits {
            env: BTreeMap::from([("NVIDIA_VISIBLE_DEVICES".to_owned(), "void".to_owned())]),
            device_nodes: vec![DeviceNode {
                path: "/dev/nvidia0".to_owned(),
                host_path: Some("/dev/nvidia3".to_owned()),
                ..DeviceNode::default()
            }],
            mounts: vec![Mount {
                host_path: "/a".to_owned(),
                container_path: "/b".to_owned(),
                options: vec!["ro".to_owned()],
            }],
            hooks: vec![Hook {
                hook_name: "createContainer".to_owned(),
                path: "/h".to_owned(),
                args: vec!["h".to_owned()],
                env: Vec::new(),
            }],
        };
        assert!(!specs.exist());
        specs.write("t1", Edits::default()).unwrap();
        assert!(specs.exist());
        specs.write("t1", edits.clone()).unwrap();
        let text = fs::read(dir.path().join("cdi/tautline.io-gpu-t1.json")).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let expected = serde_json::json!({
            "cdiVersion": "0.5.0", "kind": "tautline.io/gpu",
            "devices": [{"name": "t1", "containerEdits": {
                "env": ["NVIDIA_VISIBLE_DEVICES=void"],
                "deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/nvidia3"}],
                "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"]}],
                "hooks": [{"hookName": "createContainer", "path": "/h", "args": ["h"]}],
            }}],
        });
        assert_eq!(read, expected);
        let spec: Spec = serde_json::from_slice(&text).unwrap();
        assert_eq!(spec.devices[0].container_edits, edits);
    }

    #[test]
    fn sweep_removes_old_own_specs_that_nobody_needs() {
        let dir = tempfile::tempdir().unwrap();
        let specs = OwnSpecs::new(dir.path().to_owned());
        for token in ["live", "old"] {
            specs.write(token, Edits::default()).unwrap();
        }
        for name in ["nvidia.json", "tautline.io-gpu-x.json.new"] {
            fs::write(dir.path().join(name), "{}").unwrap();
        }
        let live = HashSet::from(["live".to_owned()]);
        specs.sweep(&live, Duration::from_secs(3600)).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
        specs.sweep(&live, Duration::ZERO).unwrap();
        let left = fs::read_dir(dir.path()).unwrap();
        let mut left: Vec<_> = left.map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["nvidia.json", "tautline.io-gpu-live.json"]);
        let absent = OwnSpecs::new(dir.path().join("absent"));
        absent.sweep(&live, Duration::ZERO).unwrap();
    }
}
