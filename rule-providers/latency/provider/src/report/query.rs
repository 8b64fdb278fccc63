//! The fields of a request for a report, and the errors of wrong requests.

use serde::de::{self, DeserializeOwned, value::MapDeserializer};

const MAX_SUGGESTIONS: usize = 5;
const MAX_DISTANCE: usize = 3;

/// The fault of a request with its fix, and the HTTP status of the answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct ReportError {
    pub status: u16,
    text: String,
}

impl ReportError {
    pub fn bad_request(text: String) -> Self {
        Self { status: 400, text }
    }

    pub fn field(name: &str, what: &str) -> Self {
        Self::bad_request(format!("{name}: {what}"))
    }

    /// Creates the error of an unknown name; `all` are the known ones.
    pub fn unknown<'a>(what: &str, name: &str, all: impl Iterator<Item = &'a str>) -> Self {
        let near = near(name, all).join(" or ");
        let hint = match near.as_str() {
            "" => String::new(),
            near => format!("; did you mean {near}?"),
        };
        Self {
            status: 404,
            text: format!("there is no {what} {name}{hint}"),
        }
    }
}

/// Reads the fields of a query: `T` has a text for each.
pub(super) fn fields<T: DeserializeOwned>(query: &str) -> Result<T, ReportError> {
    let fields = MapDeserializer::new(form_urlencoded::parse(query.as_bytes()));
    let wrong = |error: de::value::Error| ReportError::bad_request(error.to_string());
    T::deserialize(fields).map_err(wrong)
}

/// Returns the names most similar to `name`, nearest first.
fn near<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Vec<String> {
    // No name of a node or zone is longer.
    let wanted: String = name.chars().take(253).collect();
    let mut found: Vec<(usize, &str)> = all
        .filter_map(|other| {
            if !name.is_empty() && other.contains(name) {
                return Some((MAX_DISTANCE + 1, other));
            }
            let distance = strsim::levenshtein(&wanted, other);
            (distance <= MAX_DISTANCE).then_some((distance, other))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    let names = found.into_iter().map(|(_, name)| name.to_owned());
    names.take(MAX_SUGGESTIONS).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Pair {
        from: String,
        #[serde(default)]
        to: String,
    }

    #[test]
    fn fields_are_decoded_and_wrong_ones_named() {
        let pair: Pair = fields("from=a%2Db+c&to=").unwrap();
        assert_eq!((pair.from.as_str(), pair.to.as_str()), ("a-b c", ""));
        let error = |query| fields::<Pair>(query).unwrap_err().to_string();
        assert_eq!(
            error("fro=a"),
            "unknown field `fro`, expected `from` or `to`"
        );
        assert_eq!(error("from=a&to=b&to=b"), "duplicate field `to`");
        assert_eq!(error(""), "missing field `from`");
    }

    proptest! {
        #[test]
        fn any_text_parses_or_errs(text in ".{0,60}") { _ = fields::<Pair>(&text); }
    }

    #[test]
    fn the_nearest_come_first() {
        let all = ["edge-1", "edge-11", "edge-2", "north-edge-12-b", "south"];
        let of = |name| near(name, all.into_iter());
        assert_eq!(of("egde-1"), ["edge-1", "edge-11", "edge-2"]);
        assert_eq!(
            of("edge-12"),
            ["edge-1", "edge-11", "edge-2", "north-edge-12-b"]
        );
        assert!(of("quite-another").is_empty());
        let text = |name| ReportError::unknown("node", name, all.into_iter()).to_string();
        assert_eq!(text("sout"), "there is no node sout; did you mean south?");
        assert_eq!(text("quite-another"), "there is no node quite-another");
    }

    proptest! {
        #[test]
        fn any_name_has_an_answer(name in ".{0,300}", other in ".{0,300}") {
            let found = near(&name, [other.as_str()].into_iter());
            prop_assert_eq!(near(&other, [other.as_str()].into_iter()), vec![other.clone()]);
            prop_assert!(found.len() <= 1);
        }
    }
}
