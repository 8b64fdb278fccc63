//! Compliance of rules, policies and bindings.

use std::fmt;

/// Compliance with a rule, in order of severity. The numbers are those of the wire format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "schema",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)
)]
pub enum Compliance {
    /// The rule has not been evaluated yet.
    #[default]
    Pending = 0,
    /// The value is within the request.
    Compliant = 1,
    /// The value is worse than the request, but still within the limit or the grace time.
    Limit = 2,
    /// The value is beyond the limit.
    Violation = 3,
    /// The compliance is unknown, because a provider, a policy or data is missing.
    Error = 4,
}

impl Compliance {
    /// All states, in order of severity.
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::Compliant,
        Self::Limit,
        Self::Violation,
        Self::Error,
    ];
    /// All states in the order of lists: the most urgent first.
    pub const WORST_FIRST: [Self; 5] = [
        Self::Error,
        Self::Violation,
        Self::Limit,
        Self::Pending,
        Self::Compliant,
    ];

    /// Returns the name of the state, as the API writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Compliant => "Compliant",
            Self::Limit => "Limit",
            Self::Violation => "Violation",
            Self::Error => "Error",
        }
    }

    /// Returns the state with this name, in upper or lower case.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|c| c.name().eq_ignore_ascii_case(name))
    }

    /// Returns the index in [`Self::WORST_FIRST`].
    pub fn rank(self) -> usize {
        let mut order = Self::WORST_FIRST.iter();
        order.position(|c| *c == self).unwrap_or_default()
    }

    /// Returns the worst of the parts, except that Pending outweighs Compliant. Returns Pending if
    /// there are no parts.
    pub fn aggregate(parts: impl IntoIterator<Item = Self>) -> Self {
        let worst = parts.into_iter().min_by_key(|part| part.rank());
        worst.unwrap_or_default()
    }
}

impl fmt::Display for Compliance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Compliance::*;

    #[test]
    fn aggregate_gives_the_worst_part() {
        assert_eq!(Compliance::aggregate([]), Pending);
        assert_eq!(Compliance::aggregate([Compliant, Compliant]), Compliant);
        assert_eq!(Compliance::aggregate([Compliant, Pending]), Pending);
        assert_eq!(Compliance::aggregate([Limit, Pending]), Limit);
        assert_eq!(Compliance::aggregate([Error, Violation]), Error);
    }

    #[test]
    fn from_name_reads_every_name() {
        for (rank, c) in Compliance::WORST_FIRST.into_iter().enumerate() {
            assert_eq!(c.rank(), rank);
            assert_eq!(c.to_string(), c.name());
            assert_eq!(Compliance::from_name(&c.name().to_lowercase()), Some(c));
        }
        assert_eq!(Compliance::from_name("Violated"), None);
    }
}
