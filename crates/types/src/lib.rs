#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod compliance;
pub mod container;
pub mod dns;
pub mod duration;
pub mod nodes;
pub mod quantity;
pub mod reference;
pub mod text;

pub use compliance::Compliance;
pub use container::ContainerKind;
pub use reference::Reference;
