//! Formats user input for messages: quoted, on one line, and truncated.

use serde_json::Value;

/// The most characters of a text that are shown.
const MAX_SHOWN_CHARS: usize = 80;

pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ones_whole_long_ones_cut() {
        assert_eq!(quoted("a\n\"b\""), r#""a\n\"b\"""#);
        let cut = quoted(&"é".repeat(81));
        assert_eq!(cut, format!("\"{}\"...", "é".repeat(80)));
        assert_eq!(shown(&serde_json::json!([1])), "a list");
        assert_eq!(shown(&serde_json::json!(1.5)), "1.5");
    }
}
