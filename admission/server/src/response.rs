//! The answer to a review, and the parts of its JSON Patch.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ResponseKind {
    Allow,
    Mutate,
    Refuse,
    Bypass,
    /// The object cannot be decoded as its kind. The server responds with HTTP 400.
    Malformed,
}

impl ResponseKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Mutate => "mutate",
            Self::Refuse => "refuse",
            Self::Bypass => "bypass",
            Self::Malformed => "malformed",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Response {
    pub kind: ResponseKind,
    /// A stable code from a small set, which is a label of metrics.
    pub code: &'static str,
    pub text: String,
    pub status: (u16, &'static str),
    /// The JSON Patch of a mutation as text; empty for other responses.
    pub patch: String,
    pub warnings: Vec<String>,
    pub details: BTreeMap<&'static str, String>,
}

/// The most characters of a warning. The API server truncates longer warnings, and drops warnings
/// beyond a total of 4 kB.
const MAX_WARNING_CHARS: usize = 256;
const MAX_WARNINGS: usize = 12;
const MAX_AUDIT_BYTES: usize = 4096;

impl Response {
    fn new(outcome: ResponseKind, code: &'static str, text: impl Into<String>) -> Self {
        Self {
            kind: outcome,
            code,
            text: text.into(),
            status: (422, "Invalid"),
            patch: String::new(),
            warnings: Vec::new(),
            details: BTreeMap::new(),
        }
    }

    pub fn allow(code: &'static str, text: impl Into<String>) -> Self {
        Self::new(ResponseKind::Allow, code, text)
    }

    /// Creates a response with a patch. If the patch is empty, the object is allowed unchanged.
    pub fn mutate(code: &'static str, text: impl Into<String>, patch: &[impl Serialize]) -> Self {
        if patch.is_empty() {
            return Self::allow(code, text);
        }
        match serde_json::to_string(patch) {
            Ok(patch) => Self {
                patch,
                ..Self::new(ResponseKind::Mutate, code, text)
            },
            Err(error) => Self::malformed(format!("the patch: {error}")),
        }
    }

    pub fn refuse(code: &'static str, text: impl Into<String>) -> Self {
        Self::new(ResponseKind::Refuse, code, text)
    }

    pub fn bypass(code: &'static str, text: impl Into<String>) -> Self {
        Self::new(ResponseKind::Bypass, code, text)
    }

    pub fn malformed(text: impl Into<String>) -> Self {
        Self::new(ResponseKind::Malformed, "Malformed", text)
    }

    /// Adds a warning for the client. Warnings after the twelfth are dropped.
    pub fn warn(mut self, mut warning: String) -> Self {
        if let Some((end, _)) = warning.char_indices().nth(MAX_WARNING_CHARS) {
            warning.truncate(end);
        }
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(warning);
        }
        self
    }

    pub fn detail(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.details.insert(key, value.into());
        self
    }

    /// Returns the audit annotations. Texts are truncated at 4 KiB.
    pub fn audit(&self) -> BTreeMap<&'static str, String> {
        let mut all = self.details.clone();
        all.insert("outcome", self.kind.as_str().to_owned());
        all.insert("code", self.code.to_owned());
        if !self.text.is_empty() {
            all.insert("reason", self.text.clone());
        }
        for text in all.values_mut().filter(|t| t.len() > MAX_AUDIT_BYTES) {
            let fits = |end: &usize| text.is_char_boundary(*end);
            let end = (0..=MAX_AUDIT_BYTES - 3).rev().find(fits);
            text.truncate(end.unwrap_or_default());
            text.push_str("...");
        }
        all
    }
}

pub(crate) fn add_operation(path: String, value: Value) -> Value {
    serde_json::json!({"op": "add", "path": path, "value": value})
}

/// Escapes a name for a JSON pointer (RFC 6901).
pub(crate) fn pointer_segment(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_annotations_are_truncated() {
        let reason = |text: String| Response::refuse("Invalid", text).audit()["reason"].clone();
        let long = reason("é".repeat(5000));
        assert!(long.ends_with("é...") && long.len() <= MAX_AUDIT_BYTES && long.len() > 4090);
        let fits = "e".repeat(MAX_AUDIT_BYTES);
        assert_eq!(reason(fits.clone()), fits);
    }
}
