//! Results of test cases as TAP and as JUnit XML, for `tautline test` and `tautline conformance`.
//! Both formats are written from one [`Report`].

mod junit;
mod tap;

use std::time::Duration;

use serde::Serialize;

/// The results of one run.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The name of the whole test suite.
    pub suite: String,
    /// The test cases, in the order in which they ran.
    pub cases: Vec<Case>,
}

/// One test case.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Case {
    /// The file or the subject that the case belongs to.
    pub group: String,
    /// The name of the case, unique in its group.
    pub name: String,
    /// The result of the case.
    #[serde(flatten)]
    pub result: CaseResult,
    /// The duration of the case; in JSON `tookMicros`, in microseconds.
    #[serde(rename = "tookMicros", serialize_with = "as_micros")]
    pub took: Duration,
}

/// The result of a test case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "camelCase")]
pub enum CaseResult {
    /// The case ended as expected.
    Passed,
    /// The case did not end as expected.
    Failed {
        /// The expected and the actual result; the text may have several lines.
        message: String,
        /// The remedy, if one is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        fix: Option<String>,
    },
    /// The case was not run.
    Skipped {
        /// The reason why the case was not run, such as a missing requirement.
        reason: String,
    },
}

impl Report {
    /// Returns the number of failed cases.
    pub fn failed(&self) -> usize {
        let failed = |c: &&Case| matches!(c.result, CaseResult::Failed { .. });
        self.cases.iter().filter(failed).count()
    }

    /// Returns the number of skipped cases.
    pub fn skipped(&self) -> usize {
        let skipped = |c: &&Case| matches!(c.result, CaseResult::Skipped { .. });
        self.cases.iter().filter(skipped).count()
    }

    /// Returns the report in the Test Anything Protocol, version 13.
    pub fn tap(&self) -> String {
        tap::text(self)
    }

    /// Returns the report as JUnit XML, which CI systems read.
    pub fn junit(&self) -> String {
        junit::text(self)
    }
}

fn as_micros<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(took.as_micros().try_into().unwrap_or(u64::MAX))
}

#[cfg(test)]
fn sample() -> Report {
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
