use std::path::{Component, Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

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
/// The number of symbolic links that are followed from the library's name to its file.
const MAX_LINKS: usize = 8;

/// The reason why NVML does not answer.
#[derive(Debug)]
pub enum OpenError {
    /// The node has no library, or its driver is not loaded.
    NoDriver(String),
    /// The node has the library, but NVML fails.
    Failed(String),
}

/// Loads and initializes NVML. Without a given library it takes the first one below `driver_root`
/// that works, or else the one that the linker finds.
pub fn open(library: Option<&Path>, driver_root: &Path) -> Result<Nvml, OpenError> {
    if let Some(library) = library {
        return init(library);
    }
    let mut error = None;
    for candidate in candidates(driver_root) {
        match init(&candidate) {
            Ok(nvml) => return Ok(nvml),
            Err(next) => error = error.or(Some(next)),
        }
    }
    match (error, init(Path::new(NAME))) {
        (_, Ok(nvml)) => Ok(nvml),
        (Some(error), Err(_)) => Err(error),
        (None, Err(OpenError::NoDriver(why))) => Err(OpenError::NoDriver(format!(
            "{NAME} is in no known folder of {}: {why}",
            driver_root.display()
        ))),
        (None, Err(error)) => Err(error),
    }
}

fn init(library: &Path) -> Result<Nvml, OpenError> {
    Nvml::builder()
        .lib_path(library.as_os_str())
        .init()
        .map_err(|error| {
            let text = format!("{}: {error}", library.display());
            match error {
                NvmlError::LibloadingError(_)
                | NvmlError::LibraryNotFound
                | NvmlError::FailedToLoadSymbol(_)
                | NvmlError::DriverNotLoaded => OpenError::NoDriver(text),
                _ => OpenError::Failed(text),
            }
        })
}

fn candidates(root: &Path) -> Vec<PathBuf> {
    let folders = FOLDERS.iter().map(|folder| root.join(folder).join(NAME));
    folders.filter_map(|path| below(root, path)).collect()
}

/// Returns the file to which the links of a path lead, with absolute links relative to `root`;
/// `None` if there is no such file.
fn below(root: &Path, mut path: PathBuf) -> Option<PathBuf> {
    for _ in 0..MAX_LINKS {
        let Ok(target) = path.read_link() else {
            return path.is_file().then_some(path);
        };
        path = match target.components().next() {
            Some(Component::RootDir) => root.join(target.strip_prefix("/").ok()?),
            _ => path.parent()?.join(target),
        };
    }
    None
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
