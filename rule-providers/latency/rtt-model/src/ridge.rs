//! How strongly points are held at the middle.

/// The penalty of points' squares (ridge regression: Hoerl & Kennard, Technometrics 1970).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ridge {
    /// Points go where samples pull them.
    #[default]
    Weak,
    /// For flat networks: points would follow noise.
    Strong,
}

impl Ridge {
    pub fn other(self) -> Self {
        match self {
            Self::Weak => Self::Strong,
            Self::Strong => Self::Weak,
        }
    }

    /// The force on a point, a unit of its distance from the middle; a sample's is at most its
    /// clip over its time.
    pub fn pull(self) -> f32 {
        match self {
            Self::Weak => 0.01,
            Self::Strong => 0.3,
        }
    }
}
