//! When a container of a pod runs.

/// When a container of a pod runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ContainerKind {
    /// Beside all containers and sidecars.
    #[default]
    Main,
    /// To its end before the containers start, beside the sidecars that come before it.
    Init,
    /// An init container that runs on beside the containers.
    Sidecar,
}
