//! The paths of a table of workloads, which may go through each element of a list or map.

use serde::Deserialize;
use serde_json::Value;

use super::super::path::{FieldPath, Step};

/// A path such as `spec.replicatedJobs[].template`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(super) struct Pattern(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Key(String),
    /// Each element of a list, written `[]`.
    Elements,
    /// Each entry of a map, written `*`.
    Entries,
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a path; write one such as spec.groups[].template")]
pub(super) struct PatternError(String);

impl TryFrom<String> for Pattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        let mut parts = Vec::new();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (part, after) = if let Some(quoted) = rest.strip_prefix("[\"") {
                let Some((key, after)) = quoted.split_once("\"]") else {
                    return Err(PatternError(text));
                };
                (Part::Key(key.to_owned()), after)
            } else if let Some(after) = rest.strip_prefix("[]") {
                (Part::Elements, after)
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                let part = match &rest[..end] {
                    "" => return Err(PatternError(text)),
                    "*" => Part::Entries,
                    key => Part::Key(key.to_owned()),
                };
                (part, &rest[end..])
            };
            parts.push(part);
            rest = after.strip_prefix('.').unwrap_or(after);
        }
        if parts.is_empty() {
            return Err(PatternError(text));
        }
        Ok(Self(parts))
    }
}

impl Pattern {
    /// Returns the steps that lead through the lists and maps of the path, for each place that it
    /// has in `object`. A path without lists and maps has one place.
    pub(super) fn places(&self, object: &Value) -> Vec<Vec<Step>> {
        let mut places = vec![(object, Vec::new())];
        for part in &self.0 {
            let below = places.into_iter().flat_map(|(value, chosen)| {
                let with = |step: Step| chosen.iter().cloned().chain([step]).collect::<Vec<_>>();
                match (part, value) {
                    (Part::Key(key), value) => vec![(&value[key], chosen)],
                    (Part::Elements, Value::Array(items)) => {
                        let items = items.iter().enumerate();
                        items.map(|(i, v)| (v, with(Step::Index(i)))).collect()
                    }
                    (Part::Entries, Value::Object(fields)) => {
                        let fields = fields.iter();
                        fields
                            .map(|(k, v)| (v, with(Step::Key(k.clone()))))
                            .collect()
                    }
                    _ => Vec::new(),
                }
            });
            places = below.collect();
        }
        places.into_iter().map(|(_, chosen)| chosen).collect()
    }

    /// Returns the field of the path at a place of another path through the same lists and maps.
    pub(super) fn at(&self, place: &[Step]) -> FieldPath {
        let mut chosen = place.iter();
        let steps = self.0.iter().map_while(|part| match part {
            Part::Key(key) => Some(Step::Key(key.clone())),
            Part::Elements | Part::Entries => chosen.next().cloned(),
        });
        FieldPath(steps.collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_has_a_place_for_each_element() {
        let pattern = |text: &str| Pattern::try_from(text.to_owned());
        let object = json!({"a": [{"b": 1}, {}], "m": {"x": {"c.d/e": 2}, "y": {}}});
        let fields = |text: &str| -> Vec<String> {
            let pattern = pattern(text).unwrap();
            let places = pattern.places(&object).into_iter();
            places.map(|place| pattern.at(&place).to_string()).collect()
        };
        assert_eq!(fields("a[].b"), ["a[0].b", "a[1].b"]);
        assert_eq!(
            fields("m.*[\"c.d/e\"]"),
            ["m.x[\"c.d/e\"]", "m.y[\"c.d/e\"]"]
        );
        assert_eq!(fields("none.field"), ["none.field"]);
        assert_eq!(fields("m[].b"), [""; 0]);
        for bad in ["", "a..b", "a[0]", "a[\"b"] {
            assert!(pattern(bad).is_err(), "{bad}");
        }
    }
}
