//! Parses durations on the command line.

use std::time::Duration;

use tautline_core::duration;

/// Parses a duration above zero, such as `4s` or `1m30s`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = duration::parse(text).map_err(|e| e.to_string())?;
    if duration.is_zero() {
        Err("it must be above zero".into())
    } else {
        Ok(duration)
    }
}
