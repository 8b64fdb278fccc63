use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use tautline_nvml::below;

/// The file name of NVML's library.
const NAME: &str = "libnvidia-ml.so.1";
/// The directories of the library below the driver root: those of distributions, of GKE's
/// Container-Optimized OS, and of the GPU operator's driver container.
const FOLDERS: [&str; 8] = [
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/local/nvidia/lib64",
    "home/kubernetes/bin/nvidia/lib64",
    "run/nvidia/driver/usr/lib64",
    "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "run/nvidia/driver/usr/lib/aarch64-linux-gnu",
];

/// The reason why NVML does not answer.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The node has no library, or its driver is not loaded.
    #[error("no NVIDIA driver: {0}")]
    NoDriver(String),
    #[error("NVML does not start: {0}")]
    Failed(String),
}

/// Loads and initializes NVML. Without a given library it takes the first one below `driver_root`
/// that works, or else the one that the linker finds.
pub fn open(library: Option<&Path>, driver_root: &Path) -> Result<Nvml, OpenError> {
    if let Some(library) = library {
        return init(library);
    }
    let mut first = None;
    for candidate in candidates(driver_root) {
        match init(&candidate) {
            Ok(nvml) => return Ok(nvml),
            Err(error) => first = first.or(Some(error)),
        }
    }
    init(Path::new(NAME)).map_err(|last| {
        first.unwrap_or(match last {
            OpenError::NoDriver(why) => {
                let root = driver_root.display();
                OpenError::NoDriver(format!("{NAME} is in no known folder of {root}: {why}"))
            }
            failed => failed,
        })
    })
}

fn init(library: &Path) -> Result<Nvml, OpenError> {
    let opened = Nvml::builder().lib_path(library.as_os_str()).init();
    opened.map_err(|error| {
        let why = format!("{}: {error}", library.display());
        match error {
            NvmlError::LibloadingError(_)
            | NvmlError::LibraryNotFound
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::DriverNotLoaded => OpenError::NoDriver(why),
            _ => OpenError::Failed(why),
        }
    })
}

fn candidates(root: &Path) -> Vec<PathBuf> {
    let paths = FOLDERS.iter().map(|folder| Path::new(folder).join(NAME));
    paths.filter_map(|path| below(root, path)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_stay_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("usr/lib64");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(root.path().join("opt/driver")).unwrap();
        std::fs::write(root.path().join("opt/driver/ml.so"), "").unwrap();
        symlink("/opt/driver/ml.so", folder.join("libnvidia-ml.so.580")).unwrap();
        symlink("libnvidia-ml.so.580", folder.join(NAME)).unwrap();
        assert_eq!(
            candidates(root.path()),
            [root.path().join("opt/driver/ml.so")]
        );
    }

    #[test]
    fn a_circle_of_links_is_no_library() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("usr/lib64");
        std::fs::create_dir_all(&folder).unwrap();
        symlink(NAME, folder.join(NAME)).unwrap();
        assert_eq!(candidates(root.path()), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_missing_library_is_no_driver() {
        let root = tempfile::tempdir().unwrap();
        let missing = root.path().join("missing.so");
        let error = open(Some(&missing), root.path()).unwrap_err();
        assert!(matches!(error, OpenError::NoDriver(why) if why.contains("missing.so")));
    }
}
