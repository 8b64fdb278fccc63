//! Reads a duration and its limit in the texts of providers.

use std::time::Duration;

use crate::duration;

/// A value and its limit, as providers write them: `900us to north-1 > 100us`, `40us of 100us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure<'a> {
    /// The value.
    pub value: Duration,
    /// The value as the provider wrote it.
    pub text: &'a str,
    /// The limit, which is not zero.
    pub limit: Duration,
    /// The limit as the provider wrote it.
    pub limit_text: &'a str,
}

impl<'a> Figure<'a> {
    /// Returns the figure of a provider's text; `None` unless it has a value and a limit.
    pub fn parse(detail: &'a str) -> Option<Self> {
        let text = detail.split(' ').next()?;
        let value = duration::parse(text).ok()?;
        [" > ", " of "].iter().find_map(|sign| {
            let (_, after) = detail.split_once(sign)?;
            let limit_text = after.split([',', ' ']).next()?;
            let limit = duration::parse(limit_text).ok()?;
            (!limit.is_zero()).then_some(Self {
                value,
                text,
                limit,
                limit_text,
            })
        })
    }

    /// Returns the value as a multiple of the limit.
    pub fn of_limit(&self) -> f64 {
        self.value.as_secs_f64() / self.limit.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_text() {
        for (text, expected) in [
            (
                "900us > 100us between a and b, measured",
                Some(("900us", "100us", 9.0)),
            ),
            (
                "31ms to db > 20ms, measured 75s ago",
                Some(("31ms", "20ms", 1.55)),
            ),
            ("3ms of jitter to p > 4ms", Some(("3ms", "4ms", 0.75))),
            (
                "40us of 100us (request 50us) between a and b",
                Some(("40us", "100us", 0.4)),
            ),
            ("9ms > the request 5ms", None),
            ("31ms > 0s", None),
            ("no figure to db", None),
            ("far > 20ms", None),
            ("", None),
        ] {
            let figure = Figure::parse(text);
            let parts = figure.map(|f| (f.text, f.limit_text, f.of_limit()));
            assert_eq!(parts, expected, "{text}");
        }
    }
}
