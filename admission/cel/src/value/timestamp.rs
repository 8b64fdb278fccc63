use jiff::Timestamp;

/// Seconds since 1970 in the years 1 to 9999.
const RANGE: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

pub(crate) fn in_range(time: Timestamp) -> Option<Timestamp> {
    RANGE.contains(&time.as_second()).then_some(time)
}

/// A time as RFC 3339 writes it.
pub(crate) fn parse(text: &str) -> Result<Timestamp, String> {
    let wrong = || {
        format!(
            "invalid timestamp: {}",
            text.chars().take(100).collect::<String>()
        )
    };
    let bytes = text.as_bytes();
    // Go takes RFC 3339 alone: a capital T, seconds, an offset with a colon.
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
    in_range(time).ok_or_else(|| "timestamp overflow".to_owned())
}

/// The time in UTC as RFC 3339, with the decimals that are needed.
pub(crate) fn to_text(time: Timestamp) -> String {
    time.to_string()
}
