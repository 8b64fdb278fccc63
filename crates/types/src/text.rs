//! Sanitizes untrusted texts for terminals, logs, events and statuses.

use std::borrow::Cow;

const REPLACEMENT: char = '\u{fffd}';

/// The ranges of characters in Unicode's category Cf (bidi controls, joiners, tags), and the line
/// and paragraph separators.
const INVISIBLE: [(char, char); 19] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e007f}'),
];

/// Returns a text as one line, cut to `max_chars` characters. Line breaks and tabs become spaces;
/// other control and format characters become U+FFFD.
pub fn sanitize(text: &str, max_chars: usize) -> Cow<'_, str> {
    let text = clip(text, max_chars);
    if text.bytes().all(|b| matches!(b, b' '..=b'~')) || !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| match c {
        c if !is_unsafe(c) => c,
        c if c.is_whitespace() => ' ',
        _ => REPLACEMENT,
    };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Shortens a message that may quote a long value: leaves out the middle if the message has more
/// than 400 characters.
pub fn shorten(text: &str) -> Cow<'_, str> {
    const CHARS_AT_EACH_END: usize = 200;
    if text.len() <= 2 * CHARS_AT_EACH_END || text.chars().nth(2 * CHARS_AT_EACH_END).is_none() {
        return Cow::Borrowed(text);
    }
    let from = text.char_indices().rev().nth(CHARS_AT_EACH_END - 1);
    let (first, last) = (
        clip(text, CHARS_AT_EACH_END),
        from.map_or("", |(at, _)| &text[at..]),
    );
    let left_out = text.len() - first.len() - last.len();
    Cow::Owned(format!("{first}[... {left_out} bytes ...]{last}"))
}

fn clip(text: &str, max_chars: usize) -> &str {
    // A character has at least one byte.
    if text.len() <= max_chars {
        return text;
    }
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || INVISIBLE
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&c))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shorten_keeps_both_ends() {
        let long = format!("from {} to", "\u{e9}".repeat(1000));
        let short = shorten(&long);
        let middle = "\u{e9}[... 1216 bytes ...]\u{e9}";
        assert!(
            short.starts_with("from ") && short.ends_with(" to"),
            "{short}"
        );
        assert!(short.contains(middle), "{short}");
        let whole = "\u{e9}".repeat(400);
        assert_eq!(shorten(&whole), whole);
    }

    #[test]
    fn sanitize_replaces_escapes_newlines_and_bidi_overrides() {
        let hostile = "\u{1b}[2Jgone\nnext\u{9b}1m\tx\u{202e}y\u{2028}z\u{7f}\0";
        assert_eq!(
            sanitize(hostile, 200),
            "\u{fffd}[2Jgone next\u{fffd}1m x\u{fffd}y z\u{fffd}\u{fffd}"
        );
        let plain = "31 ms über der Grenze, 日本語 é";
        assert!(matches!(sanitize(plain, 200), Cow::Borrowed(text) if text == plain));
        assert_eq!(sanitize("日本語", 2), "日本");
    }

    fn texts() -> impl Strategy<Value = String> {
        let unsafe_char = (0..INVISIBLE.len()).prop_map(|at| INVISIBLE[at].1);
        let c = prop_oneof![
            any::<char>(),
            prop::char::range('\0', '\u{a0}'),
            unsafe_char
        ];
        prop::collection::vec(c, 0..40).prop_map(String::from_iter)
    }

    proptest! {
        #[test]
        fn sanitize_is_idempotent(text in texts(), max in 0..50_usize) {
            let once = sanitize(&text, max);
            prop_assert!(!once.chars().any(|c| c.is_control() || is_unsafe(c)), "{once:?}");
            prop_assert_eq!(once.chars().count(), text.chars().count().min(max));
            prop_assert!(matches!(sanitize(&once, max), Cow::Borrowed(same) if same == once));
            if !text.chars().any(is_unsafe) {
                prop_assert!(matches!(once, Cow::Borrowed(_)), "{text:?} was copied");
            }
        }
    }
}
