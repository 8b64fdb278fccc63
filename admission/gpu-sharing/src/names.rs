/// Names of the extended resources for whole and for shared cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub(crate) whole: String,
    pub(crate) shared: String,
}

/// Names that cannot be used for the resources.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamesError {
    /// A name that is not `DOMAIN/NAME`.
    #[error("{0:?} is no extended resource; write DOMAIN/NAME, such as nvidia.com/gpu")]
    NoResource(String),
    /// With equal names each review of a pod would multiply its request again.
    #[error("whole and shared cards are both {0}; name two resources")]
    Same(String),
}

impl Names {
    /// Err if a name is not `DOMAIN/NAME`, or if both are equal.
    pub fn new(whole: &str, shared: &str) -> Result<Self, NamesError> {
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
        Ok(Self {
            whole: whole.to_owned(),
            shared: shared.to_owned(),
        })
    }

    /// The resource of whole cards, by default `nvidia.com/gpu`.
    pub fn whole(&self) -> &str {
        &self.whole
    }

    /// The resource of shared cards, by default `nvidia.com/gpu-shared`.
    pub fn shared(&self) -> &str {
        &self.shared
    }
}

impl Default for Names {
    fn default() -> Self {
        Self {
            whole: "nvidia.com/gpu".into(),
            shared: "nvidia.com/gpu-shared".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_extended_resources() {
        let names = Names::new("amd.com/gpu", "amd.com/gpu-shared").unwrap();
        assert_eq!(
            (names.whole(), names.shared()),
            ("amd.com/gpu", "amd.com/gpu-shared")
        );
        let default = Names::default();
        assert_eq!(Names::new(default.whole(), default.shared()), Ok(default));
        for bad in ["gpu", "/gpu", "amd.com/", "a/b/c", "amd.com/g pu", ""] {
            let error = Names::new(bad, "amd.com/gpu-shared").unwrap_err();
            assert_eq!(error, NamesError::NoResource(bad.into()));
            assert!(Names::new("amd.com/gpu", bad).is_err(), "{bad}");
        }
        let same = Names::new("amd.com/gpu", "amd.com/gpu").unwrap_err();
        assert_eq!(
            same.to_string(),
            "whole and shared cards are both amd.com/gpu; name two resources"
        );
    }
}
