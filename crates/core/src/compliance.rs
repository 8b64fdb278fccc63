//! Compliance of rules, policies and bindings.

use std::{fmt, str::FromStr};

/// How well a rule is kept, in order of severity. The numbers are the wire's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compliance {
    /// Not known yet.
    #[default]
    Pending = 0,
    /// Within what was requested.
    Compliant = 1,
    /// Worse than requested, still within the limit or the grace.
    Limit = 2,
    /// Beyond the limit.
    Violation = 3,
    /// It cannot be told: no provider, no policy, no data.
    Error = 4,
}

impl Compliance {
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::Compliant,
        Self::Limit,
        Self::Violation,
        Self::Error,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Compliant => "Compliant",
            Self::Limit => "Limit",
            Self::Violation => "Violation",
            Self::Error => "Error",
        }
    }

    /// The state of a whole from its parts: Compliant only if every part is;
    /// with a Pending part and none worse than Compliant it is Pending; otherwise
    /// as bad as the worst. No parts: Pending.
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
    fn a_whole_is_as_bad_as_its_worst_part() {
        assert_eq!(Compliance::aggregate([]), Pending);
        assert_eq!(Compliance::aggregate([Compliant, Compliant]), Compliant);
        assert_eq!(Compliance::aggregate([Compliant, Pending]), Pending);
        assert_eq!(Compliance::aggregate([Limit, Pending]), Limit);
        assert_eq!(Compliance::aggregate([Error, Violation]), Error);
    }

    #[test]
    fn names_and_back() {
        for c in Compliance::ALL {
            assert_eq!(c.to_string().parse::<Compliance>().unwrap(), c);
        }
        assert!("compliant".parse::<Compliance>().is_err());
    }
}
