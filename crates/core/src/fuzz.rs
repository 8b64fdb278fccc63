//! Runs the parsers of untrusted text, for the fuzz target and for a test that replays its corpus.

use crate::{Reference, duration, quantity};

/// Parses bytes as a duration, a quantity and a reference.
pub fn fuzz_texts(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(parsed) = duration::parse(text) {
        let written = duration::format(parsed);
        assert_eq!(duration::parse(&written), Ok(parsed), "{written}");
    }
    if let Ok(milli) = quantity::parse_milli(text) {
        let written = quantity::format_milli(milli);
        assert_eq!(quantity::parse_milli(&written), Ok(milli), "{written}");
    }
    if let Ok(reference) = text.parse::<Reference>() {
        let written = reference.to_string();
        assert_eq!(written.parse(), Ok(reference), "{written}");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_corpus_of_the_fuzz_target_is_harmless() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/texts");
        let mut replayed = 0;
        for entry in std::fs::read_dir(&corpus).unwrap() {
            super::fuzz_texts(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed >= 5, "{} has {replayed} files", corpus.display());
    }
}
