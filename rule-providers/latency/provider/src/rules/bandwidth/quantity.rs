use std::fmt::Write;

use tautline_core::quantity;
use tautline_sdk::{ProviderError, Rule};

pub(crate) const RULE: &str = "bandwidth";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestedRates {
    pub wanted: u64,
    pub least: Option<u64>,
}

/// Parses a Kubernetes quantity of bits per second; returns `None` for an empty text.
pub(super) fn parse_bits(text: &str) -> Result<Option<u64>, quantity::QuantityError> {
    if text.is_empty() {
        return Ok(None);
    }
    quantity::parse_milli(text).map(|milli| Some(milli.unsigned_abs() / 1_000))
}

pub(super) fn requested_rates(rule: &Rule) -> Result<RequestedRates, ProviderError> {
    let read = |field, text| {
        let bad = |e| ProviderError::BadRule(format!("rule {:?}, {field}: {e}", rule.name));
        parse_bits(text).map_err(bad)
    };
    let (request, least) = (read("request", &rule.request)?, read("limit", &rule.limit)?);
    let wanted = request.or(least).unwrap_or(0);
    if least.is_some_and(|l| l > wanted) {
        let name = &rule.name;
        return Err(ProviderError::BadRule(format!(
            "rule {name:?}, limit: it is the least that is accepted, so write one up to the request, {}",
            rule.request
        )));
    }
    Ok(RequestedRates { wanted, least })
}

/// Appends a rate in bits per second, such as "940 Mbit/s".
pub(super) fn push_bits(out: &mut String, bits: u64) {
    let (unit, scale) = match bits {
        0..1_000 => ("", 1),
        1_000..1_000_000 => ("k", 1_000),
        1_000_000..1_000_000_000 => ("M", 1_000_000),
        _ => ("G", 1_000_000_000),
    };
    let hundredths = bits / (scale / 100).max(1) % 100;
    _ = match (scale, hundredths) {
        (1, _) | (_, 0) => write!(out, "{} {unit}bit/s", bits / scale),
        (_, h) if h % 10 == 0 => write!(out, "{}.{} {unit}bit/s", bits / scale, h / 10),
        (_, h) => write!(out, "{}.{h:02} {unit}bit/s", bits / scale),
    };
}
