//! Compliance of rules, policies and bindings.

use std::{fmt, str::FromStr};

/// Compliance with a rule, in order of severity. The numbers are those of the wire format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

    /// Returns the name of the state, as the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Compliant => "Compliant",
            Self::Limit => "Limit",
            Self::Violation => "Violation",
            Self::Error => "Error",
        }
    }

    /// Returns the worst of the parts, except that Pending outweighs Compliant. Returns Pending if
    /// there are no parts.
    pub fn aggregate(parts: impl IntoIterator<Item = Self>) -> Self {
        let (mut worst, mut pending) = (None, false);
        for part in parts {
            pending |= part == Self::Pending;
            worst = worst.max(Some(part));
        }
        match worst {
            None => Self::Pending,
            Some(Self::Compliant) if pending => Self::Pending,
            Some(worst) => worst,
        }
    }
}

impl fmt::Display for Compliance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Compliance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|c| c.as_str() == text).ok_or_else(|| {
            format!(
                "compliance {text:?} is unknown; use Pending, Compliant, Limit, Violation or Error"
            )
        })
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
    fn parse_reads_every_name() {
        for c in Compliance::ALL {
            assert_eq!(c.to_string().parse::<Compliance>().unwrap(), c);
        }
        assert!("compliant".parse::<Compliance>().is_err());
    }
}
