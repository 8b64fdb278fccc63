//! The fields of a request for a report, and the errors of wrong requests.

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

pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(text: &str, known: &[&str]) -> Result<Self, ReportError> {
        let mut fields: Vec<(String, String)> = Vec::new();
        for part in text.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            if !known.contains(&name) {
                let field: String = name.chars().take(40).collect();
                let what = format!("no such field; there are {}", known.join(", "));
                return Err(ReportError::field(&field, &what));
            }
            let error = |what| ReportError::field(name, what);
            if fields.iter().any(|(n, _)| n == name) {
                return Err(error("it is given twice; write it once"));
            }
            let value =
                decode(value).ok_or_else(|| error("it does not decode; write %XX of UTF-8"))?;
            fields.push((name.to_owned(), value));
        }
        Ok(Self(fields))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(n, _)| n == name)?;
        Some(value.as_str()).filter(|v| !v.is_empty())
    }

    pub(super) fn need(&self, name: &str) -> Result<&str, ReportError> {
        self.get(name)
            .ok_or_else(|| ReportError::field(name, "it is missing; name a node"))
    }
}

/// Decodes percent-encoding: <https://url.spec.whatwg.org/#percent-encoded-bytes>.
fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

/// Returns the names most similar to `name`, nearest first.
fn near<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Vec<String> {
    let wanted: Vec<char> = name.chars().take(253).collect();
    let mut found: Vec<(usize, &str)> = all
        .filter_map(|other| {
            if !name.is_empty() && other.contains(name) {
                return Some((MAX_DISTANCE + 1, other));
            }
            let distance = distance(&wanted, other);
            (distance <= MAX_DISTANCE).then_some((distance, other))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    let names = found.into_iter().map(|(_, name)| name.to_owned());
    names.take(MAX_SUGGESTIONS).collect()
}

/// Returns the Levenshtein distance.
fn distance(wanted: &[char], other: &str) -> usize {
    let mut row: Vec<usize> = (0..=wanted.len()).collect();
    for c in other.chars() {
        let mut diagonal = row[0];
        row[0] += 1;
        for (j, w) in wanted.iter().enumerate() {
            let changed = diagonal + usize::from(*w != c);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[wanted.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> Result<Query, ReportError> {
        Query::parse(text, &["from", "to"])
    }

    #[test]
    fn fields_are_decoded_and_wrong_ones_named() {
        let query = of("from=a%2Db&to=").unwrap();
        assert_eq!(query.get("from"), Some("a-b"));
        assert_eq!(query.get("to"), None);
        let error =
            |r: Result<Query, ReportError>| r.err().map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(error(of("fro=a")), "fro: no such field; there are from, to");
        assert!(error(of("to=a&to=b")).contains("twice"));
        assert!(error(of("to=%f")).contains("%XX"));
        assert!(error(of("to=%ff")).contains("UTF-8"));
        assert_eq!(
            query.need("to").unwrap_err().to_string(),
            "to: it is missing; name a node"
        );
        assert!(of("").is_ok());
    }

    proptest! {
        #[test]
        fn any_text_parses_or_errs(text in ".{0,60}") { _ = of(&text); }

        #[test]
        fn decode_reverses_encode(text in ".{1,20}") {
            let encoded: String = text.bytes().map(|b| format!("%{b:02x}")).collect();
            let query = of(&format!("to={encoded}")).unwrap();
            prop_assert_eq!(query.get("to"), Some(text.as_str()));
        }
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

        #[test]
        fn it_is_the_same_both_ways(a in "[ab]{0,6}", b in "[ab]{0,6}") {
            let chars = |t: &str| t.chars().collect::<Vec<_>>();
            prop_assert_eq!(distance(&chars(&a), &b), distance(&chars(&b), &a));
        }
    }
}
