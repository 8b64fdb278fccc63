//! Bounds the cost, memory and time of a group of evaluations. A cost unit pays for one evaluated
//! node, one visited element, or ten bytes of a string that is read or written, similar to
//! Kubernetes' units. Allocated bytes are never refunded, so they bound the memory in use. An
//! exhausted budget stays exhausted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::error::{EvaluationError, Exhausted};
use crate::pattern::Pattern;
use crate::value::ELEMENT_BYTES;

/// The limits of a budget.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most cost units that all expressions together may spend.
    pub cost_units: u64,
    /// The most bytes of strings, lists and maps that all expressions together may allocate.
    pub memory_bytes: u64,
    /// The most bytes of one expression's result, estimated as JSON without spaces.
    pub output_bytes: u64,
    /// The time by which all expressions must have finished, if any.
    pub deadline: Option<Instant>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cost_units: 1_000_000,
            memory_bytes: 32 << 20,
            output_bytes: 2 << 20,
            deadline: None,
        }
    }
}

/// The cost units between two checks of the deadline.
const DEADLINE_CHECK_UNITS: u64 = 1_000;
/// The most nested evaluations, including those of variables. A stack of 2 MiB holds this number in
/// an unoptimised build.
const MAX_DEPTH: u32 = 250;
const MAX_CACHED_PATTERNS: usize = 16;

/// The limits and the cost units, bytes and depth used so far.
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    cost_units: u64,
    memory_bytes: u64,
    deadline_checked_units: u64,
    depth: u32,
    exhausted: Option<Exhausted>,
    patterns: HashMap<Arc<str>, Arc<Pattern>>,
}

impl Budget {
    /// Creates a budget of which nothing is spent.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            cost_units: 0,
            memory_bytes: 0,
            deadline_checked_units: 0,
            depth: 0,
            exhausted: None,
            patterns: HashMap::new(),
        }
    }

    /// Returns the cost units spent so far.
    pub fn cost_units(&self) -> u64 {
        self.cost_units
    }

    /// Returns the bytes allocated so far.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Returns the limit that was reached, if any.
    pub fn exhausted(&self) -> Option<Exhausted> {
        self.exhausted
    }

    /// Returns the largest size of one result, in bytes.
    pub fn output_bytes(&self) -> u64 {
        self.limits.output_bytes
    }

    /// Spends cost units.
    ///
    /// # Errors
    /// Fails with [`EvaluationError::Exhausted`] at the limit or the deadline.
    pub fn charge(&mut self, units: u64) -> Result<(), EvaluationError> {
        if let Some(bound) = self.exhausted {
            return Err(EvaluationError::Exhausted(bound));
        }
        self.cost_units = self.cost_units.saturating_add(units);
        if self.cost_units > self.limits.cost_units {
            self.cost_units = self.limits.cost_units;
            return Err(self.exhaust(Exhausted::Cost(self.limits.cost_units)));
        }
        if self.cost_units.saturating_sub(self.deadline_checked_units) >= DEADLINE_CHECK_UNITS {
            self.deadline_checked_units = self.cost_units;
            if self
                .limits
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline)
            {
                return Err(self.exhaust(Exhausted::Deadline));
            }
        }
        Ok(())
    }

    /// Enters a nested evaluation, which [`leave`](Self::leave) ends. Fails at [`MAX_DEPTH`].
    pub(crate) fn enter(&mut self) -> Result<(), EvaluationError> {
        if self.depth >= MAX_DEPTH {
            return Err(self.exhaust(Exhausted::Depth(MAX_DEPTH)));
        }
        self.depth += 1;
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    pub(crate) fn charge_read(&mut self, bytes: usize) -> Result<(), EvaluationError> {
        self.charge(1 + bytes as u64 / 10)
    }

    /// Charges an allocation of `bytes`, before it is made.
    pub(crate) fn charge_allocation(&mut self, bytes: usize) -> Result<(), EvaluationError> {
        self.charge_read(bytes)?;
        self.memory_bytes = self.memory_bytes.saturating_add(bytes as u64);
        if self.memory_bytes > self.limits.memory_bytes {
            return Err(self.exhaust(Exhausted::Memory(self.limits.memory_bytes)));
        }
        Ok(())
    }

    /// Charges an allocation of this number of list elements, before it is made.
    pub(crate) fn charge_elements(&mut self, count: usize) -> Result<(), EvaluationError> {
        self.charge_allocation(count.saturating_mul(ELEMENT_BYTES))
    }

    pub(crate) fn exhaust(&mut self, bound: Exhausted) -> EvaluationError {
        let bound = *self.exhausted.get_or_insert(bound);
        EvaluationError::Exhausted(bound)
    }

    pub(crate) fn pattern(&self, source: &str) -> Option<Arc<Pattern>> {
        self.patterns.get(source).cloned()
    }

    pub(crate) fn cache_pattern(&mut self, source: Arc<str>, pattern: Arc<Pattern>) {
        if self.patterns.len() >= MAX_CACHED_PATTERNS {
            self.patterns.clear();
        }
        self.patterns.insert(source, pattern);
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}
