//! Determines which MIG instances fit on a card in addition to its present instances.
//!
//! A card in MIG mode has memory slices in a row and compute slices. An instance takes adjacent
//! memory slices from one of its profile's starts, and a number of compute slices.
//!
//! A DRA driver publishes only a card's product, so [`Geometry`] has tables of profiles. An agent
//! on the node publishes the profiles that NVIDIA's driver lists ([`MigLayout`]).

pub(crate) use geometry::{Geometry, MigCard};
pub use layout::{MigLayout, MigPlace, MigProfile, Occupied};

mod geometry;
mod layout;
