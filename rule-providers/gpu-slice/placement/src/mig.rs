//! MIG: the GPU instances that fit on a card next to its present ones.
//!
//! A card in MIG mode has memory slices in a row and compute slices. An instance
//! of a profile takes memory slices that follow one another, from one of a few
//! starts, and so many compute slices. [`Geometry`] says which profiles a model
//! has; [`Mig`] is one card and what is on it.
//!
//! Source of all numbers: NVIDIA Multi-Instance GPU User Guide, "Supported MIG
//! Profiles" and the placements that `nvidia-smi mig -lgipp` lists.

pub use card::{MigCard, MigError, Placement};
pub use geometry::{Geometry, Profile};

mod card;
mod geometry;
mod products;
