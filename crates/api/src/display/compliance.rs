use crate::constraint::{Compliance, ConstraintPolicyBinding};

const NAMES: [&str; 5] = ["Error", "Violation", "Limit", "Pending", "Compliant"];

impl Compliance {
    /// All states in the order of lists: the most urgent first.
    pub const WORST_FIRST: [Self; 5] = [
        Self::Error,
        Self::Violation,
        Self::Limit,
        Self::Pending,
        Self::Compliant,
    ];

    /// Returns the index in [`Self::WORST_FIRST`].
    pub fn rank(self) -> usize {
        let found = Self::WORST_FIRST.iter().position(|c| *c == self);
        found.unwrap_or(NAMES.len() - 1)
    }

    /// Returns the name, as the API writes it.
    pub fn name(self) -> &'static str {
        NAMES[self.rank()]
    }

    /// Returns the compliance with this name, in upper or lower case.
    pub fn from_name(name: &str) -> Option<Self> {
        let found = NAMES.iter().position(|n| n.eq_ignore_ascii_case(name));
        found.map(|at| Self::WORST_FIRST[at])
    }
}

impl ConstraintPolicyBinding {
    /// Returns the compliance; Pending before the first evaluation.
    pub fn compliance(&self) -> Compliance {
        let status = self.status.as_ref();
        status.map_or(Compliance::Pending, |s| s.compliance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_api() {
        for compliance in Compliance::WORST_FIRST {
            let json = serde_json::to_value(compliance).unwrap();
            assert_eq!(json, compliance.name());
            let name = compliance.name().to_lowercase();
            assert_eq!(Compliance::from_name(&name), Some(compliance));
        }
        assert_eq!(Compliance::from_name("Violated"), None);
    }
}
