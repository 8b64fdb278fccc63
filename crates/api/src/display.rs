//! Shows API objects to people: ages, compliance, events, and texts for parts of offers and
//! bindings.

pub mod age;
mod event;
mod offer;
mod rules;

pub use event::EventSummary;
pub use offer::{Enforcement, eviction_wait, evicts, group, next_eviction, reference, selector};
pub use rules::{RuleRow, rule_rows};
