//! Filters, counts and sorts the constraint policy bindings that commands show, by offer and
//! compliance.

use std::fmt;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use kube::ResourceExt;
use tautline_api::{ConstraintPolicyBinding, constraint::Compliance};

use crate::scope::name as object_name;

const NAMES: [&str; 5] = ["Error", "Violation", "Limit", "Pending", "Compliant"];

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct FilterArgs {
    /// Only bindings of this offer
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    offer: Option<String>,
    /// Only bindings with one of these, in any case (violation,error)
    #[arg(
        long,
        value_name = "C,...",
        value_delimiter = ',',
        ignore_case = true,
        value_parser = PossibleValuesParser::new(NAMES).map(|text| Compliance::from_name(&text).unwrap_or_default())
    )]
    compliance: Vec<Compliance>,
}

impl FilterArgs {
    pub(crate) fn matches_offer(&self, binding: &ConstraintPolicyBinding) -> bool {
        self.offer.as_ref().is_none_or(|o| *o == binding.spec.offer)
    }

    pub(crate) fn matches_compliance(&self, compliance: Compliance) -> bool {
        self.compliance.is_empty() || self.compliance.contains(&compliance)
    }

    /// Returns " of offer a", or an empty text if the bindings of all offers fit.
    pub(crate) fn offer_suffix(&self) -> String {
        match &self.offer {
            Some(offer) => format!(" of offer {offer}"),
            None => String::new(),
        }
    }

    /// Returns "Error or Violation", or `None` if all compliances fit.
    pub(crate) fn compliances(&self) -> Option<String> {
        let wanted = Compliance::WORST_FIRST
            .iter()
            .filter(|c| self.compliance.contains(c));
        let names: Vec<&str> = wanted.map(|c| c.name()).collect();
        (!names.is_empty()).then(|| names.join(" or "))
    }

    pub(crate) fn matches(&self, binding: &ConstraintPolicyBinding) -> bool {
        self.matches_offer(binding) && self.matches_compliance(binding.compliance())
    }
}

/// Shows " of offer a with compliance Error or Violation", or nothing if all bindings fit.
impl fmt::Display for FilterArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.offer_suffix())?;
        match self.compliances() {
            Some(wanted) => write!(f, " with compliance {wanted}"),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts([usize; 5]);

impl Counts {
    pub(crate) fn of<'a>(bindings: impl IntoIterator<Item = &'a ConstraintPolicyBinding>) -> Self {
        let mut counts = Self::default();
        for binding in bindings {
            counts.0[binding.compliance().rank()] += 1;
        }
        counts
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, usize)> {
        NAMES.into_iter().zip(self.0)
    }
}

/// Shows "3 (1 Error, 2 Compliant)", the worst first.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.iter().sum::<usize>())?;
        let mut before = " (";
        for (name, count) in self.each().filter(|(_, count)| *count > 0) {
            write!(f, "{before}{count} {name}")?;
            before = ", ";
        }
        f.write_str(if before == ", " { ")" } else { "" })
    }
}

/// The key that sorts bindings: severity, namespace, name.
pub(crate) type SortKey = (usize, Option<String>, String);

pub(crate) fn sort_key(binding: &ConstraintPolicyBinding) -> SortKey {
    (
        binding.compliance().rank(),
        binding.namespace(),
        binding.name_any(),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::tests::fixtures;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        filter: FilterArgs,
    }

    fn filter(args: &[&str]) -> Result<FilterArgs, String> {
        let args = std::iter::once("x").chain(args.iter().copied());
        Line::try_parse_from(args)
            .map(|line| line.filter)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn filter_parses_compliances_in_any_case() {
        let got = filter(&["--compliance", "violation,ERROR", "--compliance", "Limit"]).unwrap();
        assert_eq!(
            got.compliance,
            [Compliance::Violation, Compliance::Error, Compliance::Limit]
        );
        assert_eq!(
            got.to_string(),
            " with compliance Error or Violation or Limit"
        );
        for bad in ["Violated", "", "Error,,Limit"] {
            let error = filter(&["--compliance", bad]).unwrap_err();
            assert!(
                error.contains("Error, Violation, Limit, Pending, Compliant"),
                "{error}"
            );
        }
    }

    #[test]
    fn filter_requires_offer_and_compliance() {
        let all = fixtures::bindings();
        let names = |args: &[&str]| {
            let filter = filter(args).unwrap();
            let fit = all.iter().filter(|b| filter.matches(b));
            fit.map(|b| b.name_any()).collect::<Vec<_>>()
        };
        assert_eq!(names(&[]).len(), all.len());
        assert_eq!(
            names(&["--offer", "detectors", "--compliance", "violation"]),
            ["detectors-violation"]
        );
        assert_eq!(
            names(&["--compliance", "pending"]),
            ["trackers-new"],
            "without a status it is pending"
        );
    }

    #[test]
    fn sort_key_orders_by_severity_then_name() {
        let mut all = fixtures::bindings();
        all.reverse();
        all.sort_by_key(sort_key);
        let names: Vec<_> = all.iter().map(|b| b.name_any()).collect();
        assert_eq!(
            names,
            [
                "trackers-error",
                "detectors-violation",
                "detectors-limit",
                "trackers-new",
                "detectors-a",
                "detectors-a",
                "detectors-b"
            ]
        );
        assert_eq!(
            Counts::of(&all).to_string(),
            "7 (1 Error, 1 Violation, 1 Limit, 1 Pending, 3 Compliant)"
        );
        assert_eq!(Counts::default().to_string(), "0");
    }
}
