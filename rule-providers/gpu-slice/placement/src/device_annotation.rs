//! The annotation that names a pod's cards: `0:250`, `0:1000,1:1000`, `0:250@4` for a MIG instance.

use crate::shape::CARD_MILLI;

/// A part of a card, or a whole card, that a pod has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardShare {
    /// The card's index on the node, or its UUID.
    pub card: Box<str>,
    /// Thousandths of the card, from 1 to 1000.
    pub milli: u16,
    /// First memory slice of the MIG instance; `None`: the part is not an instance.
    pub start: Option<u8>,
}

/// The error of an annotation with a part that does not name a card by letters, digits, `-`, `_`
/// and `.`, or whose thousandths are not from 1 to 1000.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{part:?} is no card with thousandths; write CARD:MILLI, as in 0:250, or CARD for a whole one"
)]
pub struct AnnotationError {
    part: String,
}

/// Reads the cards of an annotation. A card without thousandths gets `milli`.
pub fn parse(text: &str, milli: u16) -> Result<Vec<CardShare>, AnnotationError> {
    parts(text).map(|part| parse_part(part, milli)).collect()
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    let dashed =
        !text.contains([',', ':']) && text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    text.split(if dashed { '-' } else { ',' })
}

fn parse_part(part: &str, milli: u16) -> Result<CardShare, AnnotationError> {
    let error = || AnnotationError {
        part: part.to_owned(),
    };
    let part = part.trim();
    let (card, milli, start) = match part.rsplit_once(':') {
        Some((card, rest)) => {
            let (milli, start) = match rest.split_once('@') {
                Some((milli, start)) => (milli, Some(start)),
                None => (rest, None),
            };
            let start = start.map(str::parse).transpose().map_err(|_| error())?;
            (card, milli.parse().map_err(|_| error())?, start)
        }
        None => (part, milli, None),
    };
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if card.is_empty() || !card.bytes().all(is_name) || !(1..=CARD_MILLI).contains(&milli) {
        return Err(error());
    }
    let card = card.into();
    Ok(CardShare { card, milli, start })
}

/// Writes the text that [`parse`] reads: `0:250,1:1000`.
pub fn format(parts: &[CardShare]) -> String {
    let text = |part: &CardShare| {
        let start = part.start.map(|start| format!("@{start}"));
        format!("{}:{}{}", part.card, part.milli, start.unwrap_or_default())
    };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}

/// Writes the cards without thousandths, as in `alibabacloud.com/gpu-index`: `0-1`.
pub fn format_indexes(parts: &[CardShare]) -> String {
    let cards: Vec<&str> = parts.iter().map(|p| &*p.card).collect();
    cards.join("-")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parse_accepts_all_forms() {
        let part = |card: &str, milli| CardShare {
            card: card.into(),
            milli,
            start: None,
        };
        assert_eq!(parse("0:250", CARD_MILLI), Ok(vec![part("0", 250)]));
        assert_eq!(
            parse("1,3", CARD_MILLI),
            Ok(vec![part("1", 1000), part("3", 1000)])
        );
        assert_eq!(
            parse("2-3", CARD_MILLI),
            Ok(vec![part("2", 1000), part("3", 1000)])
        );
        assert_eq!(parse("2", 460), Ok(vec![part("2", 460)]));
        assert_eq!(
            parse("GPU-1a-2b:500", CARD_MILLI),
            Ok(vec![part("GPU-1a-2b", 500)])
        );
        let instance = CardShare {
            start: Some(4),
            ..part("GPU-a", 250)
        };
        assert_eq!(parse("GPU-a:250@4", CARD_MILLI), Ok(vec![instance]));
        assert!(parse("0:250@", CARD_MILLI).is_err());
        assert!(parse("0:250@x", CARD_MILLI).is_err());
        assert!(parse("0:1001", CARD_MILLI).is_err());
        assert!(parse("0:0", CARD_MILLI).is_err());
        assert!(parse("", CARD_MILLI).is_err());
        for separated in ["0:1000;1:1000", "0:1000 1:1000", "0|1", "0 1"] {
            assert!(parse(separated, CARD_MILLI).is_err(), "{separated}");
        }
        let error = parse("0:x", CARD_MILLI).unwrap_err().to_string();
        assert!(error.contains("\"0:x\" is no card"), "{error}");
    }

    proptest! {
        #[test]
        fn parse_reads_what_format_writes(parts in prop::collection::vec(("[A-Za-z0-9-]{1,9}", 1..=CARD_MILLI, any::<Option<u8>>()), 1..5)) {
            let parts: Vec<CardShare> = parts.into_iter()
                .map(|(card, milli, start)| CardShare { card: card.into(), milli, start }).collect();
            prop_assert_eq!(parse(&format(&parts), CARD_MILLI), Ok(parts));
        }

        #[test]
        fn parse_never_panics(text in ".{0,40}") {
            _ = parse(&text, CARD_MILLI);
        }
    }
}
