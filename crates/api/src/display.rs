//! API objects for people: ages, the order of compliances, and texts of parts of objects.

pub mod age;
mod compliance;
mod event;
mod offer;
mod rules;

pub use event::EventSummary;
pub use offer::{Enforcement, eviction_wait, evicts, next_eviction, reference, selector};
pub use rules::{RuleRow, rule_rows};
