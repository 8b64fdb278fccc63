//! Static types.

/// A static type, as the checker knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// Known only when the expression runs.
    Dyn,
}
