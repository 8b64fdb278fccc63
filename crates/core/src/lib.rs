//! What Tautline decides, without any I/O: which offers govern a pod, who its
//! peers are, which provider answers for a rule, and, from the providers' costs,
//! which nodes are usable and how good each is.
//!
//! Nothing here awaits, and nothing here knows Kubernetes' client, gRPC or HTTP.

pub mod binding;
pub mod compliance;
pub mod compliance_state;
pub mod constraints;
mod costs;
pub mod cow_map;
pub mod dns;
pub mod duration;
mod fuzz;
pub mod index;
pub mod model;
pub mod names;
pub mod node_filter;
pub mod nodes;
mod normalized_cost;
pub mod planning;
pub mod providers;
pub mod quantity;
pub mod reference;
pub mod selector;
pub mod selector_union;
pub mod text;
pub mod trust;

pub use compliance::Compliance;
pub use index::{Index, Snapshot};
pub use reference::Reference;
pub use trust::TrustedNamespaces;

/// Reads bytes as a duration, a quantity and a reference: for the fuzz target.
#[doc(hidden)]
pub fn fuzz_texts(data: &[u8]) {
    fuzz::texts(data);
}
