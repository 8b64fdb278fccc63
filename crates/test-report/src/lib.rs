//! Results of test cases, as TAP and as JUnit XML, for `tautline test` and `tautline conformance`.

#![warn(missing_docs)]

mod junit;
mod tap;

use std::time::Duration;

use serde::Serialize;

/// The results of one run.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Name of the whole.
    pub suite: String,
    /// In the order in which they ran.
    pub cases: Vec<Case>,
}

/// One test case.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Case {
    /// Its file or subject.
    pub group: String,
    /// Its name, unique in the group.
    pub name: String,
    /// The result.
    #[serde(flatten)]
    pub result: CaseResult,
    /// Its duration; `tookMicros` in JSON.
    #[serde(rename = "tookMicros", serialize_with = "as_micros")]
    pub took: Duration,
}

/// Result of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "camelCase")]
pub enum CaseResult {
    /// As expected.
    Passed,
    /// Not as expected.
    Failed {
        /// Expected and seen; may have several lines.
        message: String,
        /// The remedy, if one is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        fix: Option<String>,
    },
    /// Not run.
    Skipped {
        /// What is missing.
        reason: String,
    },
}

impl Report {
    /// Number of failed cases.
    pub fn failed(&self) -> usize {
        let failed = |c: &&Case| matches!(c.result, CaseResult::Failed { .. });
        self.cases.iter().filter(failed).count()
    }

    /// Number of skipped cases.
    pub fn skipped(&self) -> usize {
        let skipped = |c: &&Case| matches!(c.result, CaseResult::Skipped { .. });
        self.cases.iter().filter(skipped).count()
    }

    /// Test Anything Protocol, version 13.
    pub fn tap(&self) -> String {
        tap::text(self)
    }

    /// The XML that CI systems read as JUnit's.
    pub fn junit(&self) -> String {
        junit::text(self)
    }
}

fn as_micros<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(took.as_micros().try_into().unwrap_or(u64::MAX))
}

#[cfg(test)]
pub(crate) fn sample() -> Report {
    let case = |name: &str, result| Case {
        group: "web & db.yaml".into(),
        name: name.into(),
        result,
        took: Duration::from_micros(1_500),
    };
    Report {
        suite: "tautline test".into(),
        cases: vec![
            case("near <db>", CaseResult::Passed),
            case(
                "issue #1 \\ far",
                CaseResult::Failed {
                    message: "expected: n1\ngot: \"n2\" \u{1b}[0m".into(),
                    fix: Some("raise the limit".into()),
                },
            ),
            case(
                "gpu",
                CaseResult::Skipped {
                    reason: "no cards\nhere".into(),
                },
            ),
        ],
    }
}
