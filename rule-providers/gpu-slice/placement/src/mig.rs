//! MIG: the GPU instances that fit on a card next to its present ones.
//!
//! A card in MIG mode has memory slices in a row and compute slices. An instance takes adjacent
//! memory slices from one of its profile's starts, and a number of compute slices.
//!
//! Source of all numbers: NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles" and the
//! placements of `nvidia-smi mig -lgipp`.

pub use card::{MigCard, MigError, Placement};
pub use geometry::{Geometry, Profile};

mod card;
mod geometry;
mod products;
