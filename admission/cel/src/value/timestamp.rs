use jiff::Timestamp;

use super::net::shown;
use crate::error::Invalid;

/// The seconds since 1970 of the years 1 to 9999.
const VALID_SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

pub(crate) fn in_range(time: Timestamp) -> Option<Timestamp> {
    VALID_SECONDS.contains(&time.as_second()).then_some(time)
}

/// Parses a time in the format of RFC 3339.
pub(crate) fn parse(text: &str) -> Result<Timestamp, Invalid> {
    let wrong = || Invalid(format!("invalid timestamp: {}", shown(text)));
    let bytes = text.as_bytes();
    // Go accepts only RFC 3339: a capital T, seconds, and an offset with a colon.
    let plain = bytes.len() >= 20
        && bytes[10] == b'T'
        && bytes[13] == b':'
        && bytes[16] == b':'
        && (text.ends_with('Z') || bytes[bytes.len() - 3] == b':')
        && bytes[bytes.len() - 1] != b'z'
        && &bytes[17..19] != b"60"
        && bytes[..19].iter().all(u8::is_ascii_graphic);
    if !plain {
        return Err(wrong());
    }
    let time: Timestamp = text.parse().map_err(|_| wrong())?;
    in_range(time).ok_or_else(|| "timestamp overflow".into())
}
