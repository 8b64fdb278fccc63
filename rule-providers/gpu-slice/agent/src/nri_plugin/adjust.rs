//! An injection as an adjustment of NRI.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::FileTypeExt,
    os::unix::fs::MetadataExt,
    path::Path,
};

use tautline_nri::messages::{
    ContainerAdjustment, Hook, Hooks, KeyValue, LinuxContainerAdjustment, LinuxDevice, Mount,
    OptionalFileMode, OptionalUInt32,
};

use crate::injection::{self, Device, DeviceNode, Injection};

/// The adjustment that makes the injection; `node` reads a device node of the host.
///
/// A runtime takes each path and variable once only.
///
/// # Errors
/// A device node cannot be read, or a hook's name is unknown.
pub(super) fn adjustment(
    injection: &Injection,
    node: impl Fn(&str) -> io::Result<DeviceNode>,
) -> Result<ContainerAdjustment, String> {
    let mut devices = BTreeMap::new();
    for device in &injection.devices {
        let found = match &device.node {
            Some(node) => node.clone(),
            None => node(&device.host_path).map_err(|e| no_device(&device.host_path, &e))?,
        };
        devices.insert(device.path.as_str(), linux_device(device, found));
    }
    let mounts = injection.mounts.iter();
    let mounts: BTreeMap<&str, Mount> = mounts
        .map(|of| (of.container_path.as_str(), mount(of)))
        .collect();
    let env = injection.env.iter();
    Ok(ContainerAdjustment {
        env: env
            .map(|(key, value)| KeyValue {
                key: key.clone(),
                value: value.clone(),
            })
            .collect(),
        // Parents come before what is mounted in them.
        mounts: mounts.into_values().collect(),
        hooks: hooks(&injection.hooks)?,
        linux: (!devices.is_empty()).then(|| LinuxContainerAdjustment {
            devices: devices.into_values().collect(),
        }),
        annotations: BTreeMap::new(),
    })
}

fn no_device(path: &str, error: &io::Error) -> String {
    format!("device {path} of the node: {error}; mend the node's CDI spec, or generate it again")
}

/// Refuses a container that has a variable of the injection twice, once by its image or Allocate
/// and once by its spec: runtimes replace the first only, and the other wins.
pub(super) fn check_env(env: &[String], injection: &Injection) -> Result<(), String> {
    let keys = env.iter().filter_map(|pair| Some(pair.split_once('=')?.0));
    let mut seen = BTreeSet::new();
    for key in keys.filter(|key| injection.env.contains_key(*key)) {
        if !seen.insert(key) {
            return Err(format!(
                "it has variable {key} twice; remove it from the pod's spec"
            ));
        }
    }
    Ok(())
}

fn linux_device(device: &Device, node: DeviceNode) -> LinuxDevice {
    let optional = |value: Option<u32>| value.map(|value| OptionalUInt32 { value });
    LinuxDevice {
        path: device.path.clone(),
        r#type: node.kind,
        major: node.major,
        minor: node.minor,
        file_mode: device.file_mode.map(|value| OptionalFileMode { value }),
        uid: optional(device.uid),
        gid: optional(device.gid),
    }
}

fn mount(of: &injection::Mount) -> Mount {
    let mut options = of.options.clone();
    if !options.iter().any(|o| o == "bind" || o == "rbind") {
        options.push("rbind".to_owned());
    }
    Mount {
        destination: of.container_path.clone(),
        r#type: "bind".to_owned(),
        source: of.host_path.clone(),
        options,
    }
}

fn hooks(of: &[injection::Hook]) -> Result<Option<Hooks>, String> {
    if of.is_empty() {
        return Ok(None);
    }
    let mut hooks = Hooks::default();
    for hook in of {
        let list = match hook.name.as_str() {
            "prestart" => &mut hooks.prestart,
            "createRuntime" => &mut hooks.create_runtime,
            "createContainer" => &mut hooks.create_container,
            "startContainer" => &mut hooks.start_container,
            "poststart" => &mut hooks.poststart,
            "poststop" => &mut hooks.poststop,
            other => return Err(format!("CDI hook {other:?} is unknown")),
        };
        list.push(Hook {
            path: hook.path.clone(),
            args: hook.args.clone(),
            env: hook.env.clone(),
        });
    }
    Ok(Some(hooks))
}

/// Reads a device node of the host, below `root` or in the agent's own files.
pub(super) fn read_node(root: &Path, path: &str) -> io::Result<DeviceNode> {
    let below = root.join(path.trim_start_matches('/'));
    let metadata = fs::metadata(below).or_else(|_| fs::metadata(path))?;
    let kind = metadata.file_type();
    let kind = match () {
        () if kind.is_char_device() => "c",
        () if kind.is_block_device() => "b",
        () if kind.is_fifo() => "p",
        () => return Err(io::Error::other("it is no device node")),
    };
    let (major, minor) = numbers(metadata.rdev());
    Ok(DeviceNode {
        kind: kind.to_owned(),
        major,
        minor,
    })
}

/// Major and minor number, as Linux packs them.
fn numbers(rdev: u64) -> (i64, i64) {
    let major = (rdev >> 8 & 0xfff) | (rdev >> 32 & 0xffff_f000);
    let minor = (rdev & 0xff) | (rdev >> 12 & 0xffff_ff00);
    (major as i64, minor as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_node(_: &str) -> io::Result<DeviceNode> {
        Err(io::Error::other("absent"))
    }

    #[test]
    fn adjustment_has_each_path_once() {
        let device = |path: &str, host: &str| Device {
            path: path.to_owned(),
            host_path: host.to_owned(),
            file_mode: Some(0o666),
            ..Device::default()
        };
        let mount = |path: &str, options: &[&str]| injection::Mount {
            host_path: "/h".to_owned(),
            container_path: path.to_owned(),
            options: options.iter().map(|o| (*o).to_owned()).collect(),
        };
        let injection = Injection {
            env: BTreeMap::from([("A".to_owned(), "1".to_owned())]),
            devices: vec![
                device("/dev/nvidia0", "/dev/null"),
                device("/dev/nvidia0", "/dev/zero"),
            ],
            mounts: vec![mount("/b/c", &["ro", "bind"]), mount("/b", &["ro"])],
            hooks: vec![injection::Hook {
                name: "createContainer".to_owned(),
                path: "/h".to_owned(),
                args: vec!["h".to_owned()],
                env: Vec::new(),
            }],
        };
        let got = adjustment(&injection, |path| read_node(Path::new("/none"), path)).unwrap();
        let devices = got.linux.unwrap().devices;
        assert_eq!(devices.len(), 1);
        assert_eq!((devices[0].major, devices[0].minor), (1, 5));
        assert_eq!(devices[0].r#type, "c");
        let mounts: Vec<_> = got
            .mounts
            .iter()
            .map(|m| (&*m.destination, m.options.join(",")))
            .collect();
        assert_eq!(
            mounts,
            [
                ("/b", "ro,rbind".to_owned()),
                ("/b/c", "ro,bind".to_owned())
            ]
        );
        assert_eq!(got.hooks.unwrap().create_container.len(), 1);
        assert_eq!(got.env[0].key, "A");
        let error = adjustment(&injection, no_node).unwrap_err();
        assert!(
            error.starts_with("device /dev/null of the node: absent; "),
            "{error}"
        );
    }

    #[test]
    fn variables_that_come_twice_are_refused() {
        let injection = Injection {
            env: BTreeMap::from([("A".to_owned(), "1".to_owned())]),
            ..Injection::default()
        };
        let check = |env: &[&str]| {
            let env: Vec<String> = env.iter().map(|e| (*e).to_owned()).collect();
            check_env(&env, &injection)
        };
        assert_eq!(check(&["A=2", "B=1", "B=2", "A", "AA=3"]), Ok(()));
        let error = check(&["A=void", "B=1", "A=all"]).unwrap_err();
        assert!(error.starts_with("it has variable A twice"), "{error}");
    }

    #[test]
    fn numbers_are_as_linux_packs_them() {
        assert_eq!(numbers(0xc3_03), (195, 3));
        assert_eq!(
            numbers(0x0010_0000 | 0x1_fe_01),
            (0x1fe & 0xfff, 0x101 | 0x001)
        );
        assert!(read_node(Path::new("/"), "/proc/self/status").is_err());
    }
}
