//! The kinds of a pod's containers, by the time at which they run.

/// The kind of a container, by the time at which it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ContainerKind {
    /// A main container, which runs together with all other main containers and the sidecars.
    #[default]
    Main,
    /// An init container, which ends before the next container starts. The sidecars listed before
    /// it run at the same time.
    Init,
    /// An init container that keeps running while the main containers run.
    Sidecar,
}
