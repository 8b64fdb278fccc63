//! Shows the values of bindings against their limits, and sorts bindings by their excess.

use std::cmp::Reverse;

use maud::{Markup, html};
use serde::Serialize;
use tautline_api::ConstraintPolicyBinding;
use tautline_core::figure::Figure;

/// The worst value of a binding, by the reasons of its rules.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Measured {
    pub value: String,
    pub limit: String,
    /// The value as a percentage of the limit.
    pub percent_of_limit: u64,
}

/// Returns the value that exceeds its limit by most, or comes nearest to it; `None` if no rule of
/// the binding has a value and a limit.
pub(crate) fn worst(binding: &ConstraintPolicyBinding) -> Option<Measured> {
    let details = binding.status.iter().flat_map(|status| &status.details);
    let rules = details.flat_map(|detail| &detail.rule_details);
    let figures = rules.filter_map(|rule| Measured::parse(&rule.reason));
    figures.max_by_key(|figure| figure.percent_of_limit)
}

/// Returns the key that sorts bindings: the worst compliance and then the greatest excess first,
/// those without a value last.
pub(crate) fn worst_first(binding: &ConstraintPolicyBinding) -> (usize, Reverse<Option<u64>>) {
    let percent = worst(binding).map(|figure| figure.percent_of_limit);
    (binding.compliance().rank(), Reverse(percent))
}

impl Measured {
    /// Returns the value of a provider's reason.
    pub(crate) fn parse(reason: &str) -> Option<Self> {
        let figure = Figure::parse(reason)?;
        Some(Self {
            value: figure.text.to_owned(),
            limit: figure.limit_text.to_owned(),
            percent_of_limit: (figure.of_limit() * 100.0).round() as u64,
        })
    }

    /// Renders the value as a bar on which the limit is the middle. A longer value fills the bar.
    pub(crate) fn bar(&self) -> Markup {
        let percent = self.percent_of_limit;
        let class = match percent {
            ..=80 => "good",
            81..=100 => "near",
            _ => "bad",
        };
        let text = match percent {
            200.. => format!("{} times the limit", (percent as f64 / 10.0).round() / 10.0),
            _ => format!("{percent} % of the limit"),
        };
        html! {
            span .of-limit {
                svg .bar .limit viewBox="0 0 200 10" preserveAspectRatio="none" aria-hidden="true" {
                    rect class=(class) width=(percent.clamp(2, 200)) height="10" {}
                    line x1="100" x2="100" y1="0" y2="10" {}
                }
                " " span .dim { (text) }
            }
        }
    }
}
