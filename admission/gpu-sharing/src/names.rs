/// The resource that Tautline's GPU agent counts in thousandths of a card instead of shares.
const MILLI: &str = "tautline.io/gpu-milli";
const CARD_MILLI: i64 = 1000;

/// The names of the extended resources for whole and for shared cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub(crate) whole: String,
    pub(crate) shared: String,
    /// The number of shares of one card, if a unit is a thousandth of a card; `None` if a unit is a
    /// share.
    shares_per_card: Option<i64>,
}

/// The reason why names cannot be used for the resources.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamesError {
    /// A name is not `DOMAIN/NAME`.
    #[error("{0:?} is no extended resource; write DOMAIN/NAME, such as nvidia.com/gpu")]
    NoResource(String),
    /// The names are equal, so that each review of a pod would multiply its request again.
    #[error("whole and shared cards are both {0}; name two resources")]
    Same(String),
    /// The number of shares is missing for a resource in thousandths of a card. Without the number
    /// a share would be a thousandth.
    #[error(
        "{MILLI} counts thousandths of a card; set the number of shares of a card, \
         --gpu-shares-per-card, such as 4"
    )]
    NoSharesPerCard,
    /// The number of shares is given for a resource whose device plugin sets it.
    #[error(
        "{0} counts shares, and its device plugin says how many a card has; leave out \
         --gpu-shares-per-card, which is for {MILLI}"
    )]
    SharesPerCard(String),
    /// The number of shares is not from 1 to 1000.
    #[error("{0} shares of a card; --gpu-shares-per-card is 1 to 1000")]
    BadSharesPerCard(u32),
}

impl Names {
    /// Creates names. `shares_per_card` must be given for the resource `tautline.io/gpu-milli`,
    /// from 1 to 1000, and only for it. Fails also if a name is not `DOMAIN/NAME`, or if both are
    /// equal.
    pub fn new(
        whole: &str,
        shared: &str,
        shares_per_card: Option<u32>,
    ) -> Result<Self, NamesError> {
        for name in [whole, shared] {
            let parts = name.split_once('/');
            let fits = |part: &str| !part.is_empty() && !part.contains(char::is_whitespace);
            if !parts.is_some_and(|(d, n)| fits(d) && fits(n) && !n.contains('/')) {
                return Err(NamesError::NoResource(name.to_owned()));
            }
        }
        if whole == shared {
            return Err(NamesError::Same(whole.to_owned()));
        }
        let shares_per_card = match shares_per_card {
            None if shared == MILLI => return Err(NamesError::NoSharesPerCard),
            Some(_) if shared != MILLI => {
                return Err(NamesError::SharesPerCard(shared.to_owned()));
            }
            Some(n) if !(1..=1000).contains(&n) => return Err(NamesError::BadSharesPerCard(n)),
            shares => shares.map(i64::from),
        };
        Ok(Self {
            whole: whole.to_owned(),
            shared: shared.to_owned(),
            shares_per_card,
        })
    }

    /// Returns the units of the shared resource for a number of shares. Shares that fill a card
    /// give 1000 thousandths, even if their number does not divide 1000.
    pub(crate) fn units(&self, shares: i64) -> i64 {
        let Some(each) = self.shares_per_card else {
            return shares;
        };
        let (whole, rest) = (shares / each, shares % each);
        whole
            .saturating_mul(CARD_MILLI)
            .saturating_add(rest * (CARD_MILLI / each))
    }

    /// Returns the resource of whole cards, by default `nvidia.com/gpu`.
    pub fn whole(&self) -> &str {
        &self.whole
    }

    /// Returns the resource of shared cards, by default `nvidia.com/gpu-shared`.
    pub fn shared(&self) -> &str {
        &self.shared
    }
}

impl Default for Names {
    fn default() -> Self {
        Self {
            whole: "nvidia.com/gpu".into(),
            shared: "nvidia.com/gpu-shared".into(),
            shares_per_card: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_extended_resources() {
        let names = Names::new("amd.com/gpu", "amd.com/gpu-shared", None).unwrap();
        assert_eq!(
            (names.whole(), names.shared()),
            ("amd.com/gpu", "amd.com/gpu-shared")
        );
        let default = Names::default();
        assert_eq!(
            Names::new(default.whole(), default.shared(), None),
            Ok(default)
        );
        for bad in ["gpu", "/gpu", "amd.com/", "a/b/c", "amd.com/g pu", ""] {
            let error = Names::new(bad, "amd.com/gpu-shared", None).unwrap_err();
            assert_eq!(error, NamesError::NoResource(bad.into()));
            assert!(Names::new("amd.com/gpu", bad, None).is_err(), "{bad}");
        }
        let same = Names::new("amd.com/gpu", "amd.com/gpu", None).unwrap_err();
        assert_eq!(
            same.to_string(),
            "whole and shared cards are both amd.com/gpu; name two resources"
        );
    }

    #[test]
    fn thousandths_need_the_shares_of_a_card() {
        let names = |shared: &str, n| Names::new("nvidia.com/gpu", shared, n);
        let quarters = names(MILLI, Some(4)).unwrap();
        for (shares, units) in [(1, 250), (2, 500), (4, 1000), (8, 2000), (6, 1500)] {
            assert_eq!(quarters.units(shares), units);
        }
        let thirds = names(MILLI, Some(3)).unwrap();
        assert_eq!((thirds.units(1), thirds.units(3)), (333, 1000));
        assert_eq!(quarters.units(i64::MAX), i64::MAX);
        assert_eq!(Names::default().units(3), 3);
        assert_eq!(names(MILLI, None), Err(NamesError::NoSharesPerCard));
        assert_eq!(
            names(MILLI, Some(1001)),
            Err(NamesError::BadSharesPerCard(1001))
        );
        let other = names("nvidia.com/gpu.shared", Some(4)).unwrap_err();
        assert!(
            other
                .to_string()
                .starts_with("nvidia.com/gpu.shared counts shares")
        );
    }
}
