//! The time at which a container of a pod runs.

/// The time at which a container of a pod runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ContainerKind {
    /// The container runs beside all containers and sidecars.
    #[default]
    Main,
    /// The container ends before the others start, beside the sidecars that come before it.
    Init,
    /// An init container that runs on beside the containers.
    Sidecar,
}
