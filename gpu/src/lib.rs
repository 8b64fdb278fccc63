//! The GPUs of a cluster: what a node's devices are and what is left of them
//! ([`room`], [`mig`], [`dra`]), which requests come ([`popularity`]), and where
//! the next one does least harm ([`policy`], [`board`]).
//!
//! Pure: nothing here knows a cluster's API or waits.

pub mod board;
pub mod dra;
pub mod mig;
pub mod policy;
pub mod popularity;
pub mod room;
pub mod shape;
pub mod types;

pub use board::{Board, Refusal};
pub use policy::Place;
pub use popularity::{Popularity, TaskType};
pub use room::{Grant, Room, Short};
pub use shape::{CARD, Kind, Lane, Shape};
pub use types::Types;
