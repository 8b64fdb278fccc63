//! The encodings of manifest files: UTF-8, and UTF-16 with or without a byte order mark.

use std::borrow::Cow;

use serde_json::value::RawValue;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// Decodes the bytes of a file. As in kubectl, malformed bytes become U+FFFD.
pub fn decode(bytes: Vec<u8>) -> String {
    let from: fn([u8; 2]) -> u16 = match bytes.as_slice() {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        // YAML and JSON begin with an ASCII character, which the zero byte tells apart.
        [1..=0x7f, 0, ..] => u16::from_le_bytes,
        [0, 1..=0x7f, ..] => u16::from_be_bytes,
        _ => {
            return String::from_utf8(bytes)
                .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
        }
    };
    let (pairs, rest) = bytes.as_chunks::<2>();
    let units = pairs.iter().map(|pair| from(*pair));
    let characters = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
    let cut = rest.iter().map(|_| char::REPLACEMENT_CHARACTER);
    characters.chain(cut).collect()
}

/// Returns a text without the byte order marks at the starts of its lines: files that were joined
/// have such marks inside.
pub(super) fn without_marks(text: &str) -> Cow<'_, str> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    if text.contains("\n\u{feff}") {
        Cow::Owned(text.replace("\n\u{feff}", "\n"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns the parts of a text, each with the number of its first line. In JSON, each value is a
/// part, because `kubectl` reads several values without a separator. Any other text is one part.
pub(super) fn parts(text: &str) -> Vec<(u64, &str)> {
    let whole = vec![(1, text)];
    if !text.trim_start().starts_with('{') {
        return whole;
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let (mut parts, mut line, mut end) = (Vec::new(), 1, 0);
    while let Some(value) = values.next() {
        // A text that is not JSON may be YAML.
        let Ok(value) = value else { return whole };
        let start = values.byte_offset() - value.get().len();
        line += lines(&text[end..start]);
        parts.push((line, value.get()));
        end = values.byte_offset();
        line += lines(value.get());
    }
    parts
}

fn lines(text: &str) -> u64 {
    text.bytes().filter(|b| *b == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_reads_utf_16_of_both_orders() {
        let text = "\u{feff}a: \u{e9}\u{1f600}\n";
        let of = |bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
            text.encode_utf16().flat_map(bytes).collect()
        };
        for bytes in [of(u16::to_le_bytes), of(u16::to_be_bytes), text.into()] {
            assert_eq!(decode(bytes), text);
        }
        let unmarked = text.trim_start_matches(BYTE_ORDER_MARK);
        for mut bytes in [of(u16::to_le_bytes), of(u16::to_be_bytes)] {
            bytes.drain(..2);
            assert_eq!(decode(bytes), unmarked);
        }
        let cut = vec![0xff, 0xfe, 0x61, 0, 0, 0xd8, 0x62];
        assert_eq!(decode(cut), "\u{feff}a\u{fffd}\u{fffd}");
        assert_eq!(decode(b"a: \xe9\n".to_vec()), "a: \u{fffd}\n");
    }

    #[test]
    fn parts_are_json_values_with_their_lines() {
        let text = "\n{\"a\":\n1}{\"b\": 2}\n\n {}\n";
        let expected = [(2, "{\"a\":\n1}"), (3, "{\"b\": 2}"), (5, "{}")];
        assert_eq!(parts(text), expected);
        for yaml in ["{a: 1}", "{\"a\": 1}\n---\n{\"b\": 1}", "a: 1", ""] {
            assert_eq!(parts(yaml), [(1, yaml)]);
        }
    }
}
