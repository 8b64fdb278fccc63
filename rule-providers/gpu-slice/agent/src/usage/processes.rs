//! Finds the owner of a process in `/proc`.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use tautline_nvml::below;

use crate::cgroup::{self, ContainerRef};

const MPS_SERVER: &str = "nvidia-cuda-mps-server";
/// The directories of the driver's programs, below the driver root.
const PROGRAM_DIRS: [&str; 5] = [
    "usr/bin",
    "bin",
    "usr/local/nvidia/bin",
    "home/kubernetes/bin/nvidia/bin",
    "run/nvidia/driver/usr/bin",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The MPS server, whose memory is overhead of the card.
    MpsServer,
    /// The containers that the cgroup of the process names, outermost first; never empty.
    Pod(Vec<ContainerRef>),
    Outside {
        command: String,
    },
}

#[derive(Debug)]
pub(crate) struct Processes {
    proc: PathBuf,
    driver_root: PathBuf,
}

impl Processes {
    /// Creates a look-up in `proc`, the `/proc` of the host's PID namespace; `driver_root` is the
    /// root directory of the host's files.
    pub fn new(proc: PathBuf, driver_root: PathBuf) -> Self {
        Self { proc, driver_root }
    }

    /// Returns the owner of a process; `None` if the process has ended.
    pub(super) fn owner(&self, pid: u32) -> Option<Owner> {
        let dir = self.proc.join(pid.to_string());
        let cgroup = fs::read_to_string(dir.join("cgroup")).ok()?;
        let command = fs::read(dir.join("comm")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).trim().to_owned();
        if self.is_mps_server(&dir, &command) {
            return Some(Owner::MpsServer);
        }
        let containers = cgroup::containers(&cgroup);
        Some(if containers.is_empty() {
            Owner::Outside { command }
        } else {
            Owner::Pod(containers)
        })
    }

    /// Returns whether the process is an MPS server. Its executable file decides, since any process
    /// can take the name.
    fn is_mps_server(&self, dir: &Path, command: &str) -> bool {
        // The kernel keeps 15 bytes of the name.
        if command.is_empty() || !MPS_SERVER.starts_with(command) {
            return false;
        }
        let file = |path: &Path| fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
        let runs = file(&dir.join("exe"));
        let of_driver = |dir: &str| {
            let path = below(&self.driver_root, Path::new(dir).join(MPS_SERVER));
            path.and_then(|path| file(&path))
        };
        runs.is_some() && PROGRAM_DIRS.iter().any(|dir| of_driver(dir) == runs)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_mps_server_is_told_by_its_file() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            fs::write(path(name), text).unwrap();
        };
        write("host/usr/lib/nvidia/nvidia-cuda-mps-server", "");
        write("host/usr/bin/bash", "");
        let link = path("host/usr/bin/nvidia-cuda-mps-server");
        symlink("/usr/lib/nvidia/nvidia-cuda-mps-server", link).unwrap();
        write("image/nvidia-cuda-mps-server", "");
        let pod = "0::/kubepods/poda-b/0123456789abcdef\n";
        for (pid, cgroup, name, exe) in [
            (
                1,
                pod,
                "nvidia-cuda-mps\n",
                "host/usr/lib/nvidia/nvidia-cuda-mps-server",
            ),
            (2, pod, "nvidia-cuda-mps\n", "image/nvidia-cuda-mps-server"),
            (3, "0::/system.slice/gdm.service\n", "Xorg\n", "image/Xorg"),
            (
                4,
                pod,
                "python\n",
                "host/usr/lib/nvidia/nvidia-cuda-mps-server",
            ),
        ] {
            write(&format!("proc/{pid}/cgroup"), cgroup);
            write(&format!("proc/{pid}/comm"), name);
            symlink(path(exe), path(&format!("proc/{pid}/exe"))).unwrap();
        }
        let processes = Processes::new(path("proc"), path("host"));
        let in_pod = Owner::Pod(vec![ContainerRef {
            pod_uid: "a-b".into(),
            id: "0123456789abcdef".into(),
        }]);
        assert_eq!(processes.owner(1), Some(Owner::MpsServer));
        assert_eq!(processes.owner(2), Some(in_pod.clone()), "of the image");
        let command = "Xorg".to_owned();
        assert_eq!(processes.owner(3), Some(Owner::Outside { command }));
        assert_eq!(processes.owner(4), Some(in_pod));
        assert_eq!(processes.owner(5), None);
    }
}
