//! Errors of fields, in the form of `k8s.io/apimachinery/pkg/util/validation/field`.

use std::fmt::{self, Write};

use serde_json::Value;

/// The most errors that are listed. Further errors are only counted.
const MAX_ERRORS: usize = 1000;
/// The most characters of a value that are shown.
const MAX_SHOWN_CHARS: usize = 200;

/// The error of one field, displayed in the wording of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The path of the field, for example `spec.backends[0].workers`.
    pub(crate) path: String,
    pub(crate) problem: Problem,
    pub(crate) detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    Invalid(String),
    /// A value of a wrong type, as JSON. The object cannot be decoded.
    Malformed(String),
    Required,
    Forbidden,
    /// The number of errors that are not listed.
    More(usize),
}

impl FieldError {
    /// Returns whether the value has a wrong type, so that the object cannot be decoded.
    pub fn is_malformed(&self) -> bool {
        matches!(self.problem, Problem::Malformed(_))
    }

    pub(crate) fn invalid(path: &str, value: &Value, detail: impl Into<String>) -> Self {
        Self::new(path, Problem::Invalid(shown(value)), detail)
    }

    pub(crate) fn malformed(path: &str, value: &Value, detail: impl Into<String>) -> Self {
        Self::new(path, Problem::Malformed(shown(value)), detail)
    }

    pub(crate) fn required(path: &str, detail: impl Into<String>) -> Self {
        Self::new(path, Problem::Required, detail)
    }

    pub(crate) fn forbidden(path: &str, detail: impl Into<String>) -> Self {
        Self::new(path, Problem::Forbidden, detail)
    }

    fn new(path: &str, problem: Problem, detail: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            problem,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, detail, .. } = self;
        match &self.problem {
            Problem::Invalid(value) | Problem::Malformed(value) => {
                write!(f, "{path}: Invalid value: {value}: {detail}")
            }
            Problem::Required => write!(f, "{path}: Required value: {detail}"),
            Problem::Forbidden => write!(f, "{path}: Forbidden: {detail}"),
            Problem::More(count) => write!(f, "and {count} more"),
        }
    }
}

impl std::error::Error for FieldError {}

/// Returns all errors as one text: a heading, then one line for each error.
pub fn message(errors: &[FieldError]) -> String {
    let mut out = "validation failed:".to_owned();
    for error in errors {
        _ = write!(out, "\n  - {error}");
    }
    out
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        None => text,
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

#[derive(Default)]
pub(crate) struct Errors {
    found: Vec<FieldError>,
    more: usize,
}

impl Errors {
    pub(crate) fn push(&mut self, error: FieldError) {
        if self.found.len() < MAX_ERRORS {
            self.found.push(error);
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn into_result(mut self) -> Result<(), Vec<FieldError>> {
        // An object that cannot be decoded is not validated further.
        if self.found.iter().any(FieldError::is_malformed) {
            self.found.retain(FieldError::is_malformed);
        }
        if self.more > 0 {
            let more = Problem::More(self.more);
            self.found.push(FieldError::new("", more, ""));
        }
        if self.found.is_empty() {
            Ok(())
        } else {
            Err(self.found)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn as_kubernetes_writes_them() {
        let errors = [
            FieldError::invalid("spec.a", &json!(3), "too many"),
            FieldError::invalid("spec.b[1]", &json!("x\ny"), "no good"),
            FieldError::required("spec.c", "set it"),
            FieldError::forbidden("spec.d", "leave it out"),
            FieldError::malformed("spec.e", &json!([1]), "write a text"),
        ];
        insta::assert_snapshot!(message(&errors), @r#"
        validation failed:
          - spec.a: Invalid value: 3: too many
          - spec.b[1]: Invalid value: "x\ny": no good
          - spec.c: Required value: set it
          - spec.d: Forbidden: leave it out
          - spec.e: Invalid value: [1]: write a text
        "#);
        assert!(errors[4].is_malformed() && !errors[0].is_malformed());
    }

    #[test]
    fn long_values_and_many_errors_are_cut() {
        let long = FieldError::invalid("a", &json!("é".repeat(300)), "b").to_string();
        assert_eq!(
            long,
            format!("a: Invalid value: \"{}...: b", "é".repeat(199))
        );
        let mut errors = Errors::default();
        for _ in 0..MAX_ERRORS + 2 {
            errors.push(FieldError::required("a", "b"));
        }
        let errors = errors.into_result().unwrap_err();
        assert_eq!(errors.len(), MAX_ERRORS + 1);
        assert!(message(&errors).ends_with("\n  - a: Required value: b\n  - and 2 more"));
        assert_eq!(Errors::default().into_result(), Ok(()));
    }
}
