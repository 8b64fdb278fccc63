//! Compliance of rules, policies and bindings.

use std::{fmt, str::FromStr};

/// Compliance with a rule, in order of severity. The numbers are those of the wire format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compliance {
    /// Not evaluated yet.
    #[default]
    Pending = 0,
    /// Within the request.
    Compliant = 1,
    /// Worse than the request, still within the limit or the grace time.
    Limit = 2,
    /// Beyond the limit.
    Violation = 3,
    /// Not known: no provider, no policy, or no data.
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

    /// The name, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Compliant => "Compliant",
            Self::Limit => "Limit",
            Self::Violation => "Violation",
            Self::Error => "Error",
        }
    }

    /// The worst part, except that Pending outweighs Compliant; Pending without parts.
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
