//! The GPUs of a cluster: what a node's devices are and what is left of them
//! ([`inventory`], [`room`], [`mig`], [`dra`]), which requests come ([`popularity`]), and where
//! the next one does least harm ([`policy`], [`board`]).
//!
//! Pure: nothing here knows a cluster's API or waits.

pub mod board;
pub mod dra;
pub mod inventory;
pub mod mig;
pub mod names;
pub mod policy;
pub mod popularity;
pub mod record;
pub mod room;
pub mod shape;
pub mod types;

pub use board::{Board, Refusal};
pub use inventory::Inventory;
pub use names::Names;
pub use policy::Place;
pub use popularity::{Popularity, TaskType};
pub use room::{Grant, Room, Short};
pub use shape::{CARD, Kind, Lane, Shape};
pub use types::Types;
