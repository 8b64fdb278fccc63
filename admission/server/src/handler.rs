//! What answers on a path: a request goes in, a verdict with its reason comes out.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;

use crate::review::Request;

/// What becomes of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseKind {
    /// As it is.
    Allow,
    /// Changed.
    Mutate,
    /// Not at all.
    Refuse,
    /// As it is, because nobody could or should look at it.
    Bypass,
    /// What is to be reviewed cannot be decoded: the answer is HTTP 400.
    Malformed,
}

impl ResponseKind {
    /// As metrics and audit annotations have it.
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

/// An answer, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// What becomes of the request.
    pub kind: ResponseKind,
    /// A stable code, one of few: it is a label of a metric.
    pub code: &'static str,
    /// Why, for people. Of a refusal it is all that they see.
    pub text: String,
    /// HTTP status and reason of a refusal.
    pub status: (u16, &'static str),
    /// The JSON Patch of a mutation, as text; else empty.
    pub patch: String,
    /// What the client is told beside the answer.
    pub warnings: Vec<String>,
    /// More for the audit log.
    pub details: BTreeMap<&'static str, String>,
}

/// The API server cuts a warning that is longer, and drops those beyond 4 kB.
const WARNING_CHARS: usize = 256;
const WARNINGS: usize = 12;
/// Of one audit annotation; what is longer is cut.
const AUDIT_BYTES: usize = 4096;

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

    /// It may pass as it is.
    pub fn allow(code: &'static str, text: impl Into<String>) -> Self {
        Self::new(ResponseKind::Allow, code, text)
    }

    /// It passes with a change; without any operation it passes as it is.
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

    /// It may not pass.
    pub fn refuse(code: &'static str, text: impl Into<String>) -> Self {
        Self::new(ResponseKind::Refuse, code, text)
    }

    /// It passes unseen.
    pub fn bypass(code: &'static str, text: impl Into<String>) -> Self {
        Self::new(ResponseKind::Bypass, code, text)
    }

    /// It is no object of its kind.
    pub fn malformed(text: impl Into<String>) -> Self {
        Self::new(ResponseKind::Malformed, "Malformed", text)
    }

    /// Tells the client something beside the answer; more than a dozen are not sent.
    pub fn warn(mut self, mut warning: String) -> Self {
        if let Some((end, _)) = warning.char_indices().nth(WARNING_CHARS) {
            warning.truncate(end);
        }
        if self.warnings.len() < WARNINGS {
            self.warnings.push(warning);
        }
        self
    }

    /// Tells the audit log more.
    pub fn detail(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.details.insert(key, value.into());
        self
    }

    /// What the audit log gets; texts are cut at 4 KiB.
    pub fn audit(&self) -> BTreeMap<&'static str, String> {
        let mut all = self.details.clone();
        all.insert("outcome", self.kind.as_str().to_owned());
        all.insert("code", self.code.to_owned());
        if !self.text.is_empty() {
            all.insert("reason", self.text.clone());
        }
        for text in all.values_mut().filter(|t| t.len() > AUDIT_BYTES) {
            let fits = |end: &usize| text.is_char_boundary(*end);
            let end = (0..=AUDIT_BYTES - 3).rev().find(fits);
            text.truncate(end.unwrap_or_default());
            text.push_str("...");
        }
        all
    }
}

/// What answers on a path.
pub trait Handler: Send + Sync {
    /// The verdict on a request; what is in it is whoever's who may create objects.
    fn review(self: Arc<Self>, request: Arc<Request>) -> BoxFuture<'static, Response>;
}

/// A job that needs to wait for nothing.
pub(crate) struct SyncHandler<F>(pub F);

impl<F: Fn(&Request) -> Response + Send + Sync> Handler for SyncHandler<F> {
    fn review(self: Arc<Self>, request: Arc<Request>) -> BoxFuture<'static, Response> {
        let verdict = (self.0)(&request);
        Box::pin(std::future::ready(verdict))
    }
}

/// A path with its job.
#[derive(Clone)]
pub struct Route {
    /// The job's name in metrics and logs.
    pub name: &'static str,
    /// The job.
    pub handler: Arc<dyn Handler>,
}

/// Every path that answers.
pub type Routes = BTreeMap<&'static str, Route>;

/// A JSON Patch operation that adds or replaces.
pub(crate) fn add_operation(path: String, value: Value) -> Value {
    serde_json::json!({"op": "add", "path": path, "value": value})
}

/// A name as a segment of a JSON Pointer (RFC 6901).
pub(crate) fn pointer_segment(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audit_log_gets_what_it_can_hold() {
        let told = |text: String| Response::refuse("Invalid", text).audit()["reason"].clone();
        let long = told("é".repeat(5000));
        assert!(long.ends_with("é...") && long.len() <= AUDIT_BYTES && long.len() > 4090);
        let fits = "e".repeat(AUDIT_BYTES);
        assert_eq!(told(fits.clone()), fits);
    }
}
