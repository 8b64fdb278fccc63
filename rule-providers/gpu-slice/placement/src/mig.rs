//! MIG: the GPU instances that fit on a card next to its present ones.
//!
//! A card in MIG mode has memory slices in a row and compute slices. An instance takes adjacent
//! memory slices from one of its profile's starts, and a number of compute slices.
//!
//! A DRA driver names a card's product only, so [`Geometry`] has tables; an agent on the node writes
//! what the driver lists ([`MigLayout`]).
//!
//! Source of the tables' numbers: NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles" and the
//! placements of `nvidia-smi mig -lgipp`.

pub use card::{MigCard, MigError, Placement};
pub use geometry::{Geometry, Profile};
pub use layout::{MigLayout, MigPlace, MigProfile, Occupied};

mod card;
mod geometry;
mod layout;
mod products;
