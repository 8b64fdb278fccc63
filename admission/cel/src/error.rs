use std::fmt;

/// The error of an expression that does not compile. Its text has one line per issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// The issues in the order of the source. There is at least one.
    pub issues: Vec<Issue>,
}

/// An issue of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The line, counted from 1.
    pub line: u32,
    /// The column in characters, counted from 1.
    pub column: u32,
    /// A description of the error and, where possible, of its fix.
    pub message: String,
}

impl CompileError {
    /// Creates an error from messages at byte offsets of the source.
    pub(crate) fn at(source: &str, mut issues: Vec<(u32, String)>) -> Self {
        issues.sort();
        issues.dedup();
        let issue = |(at, message)| {
            let (line, column) = position(source, at);
            Issue {
                line,
                column,
                message,
            }
        };
        Self {
            issues: issues.into_iter().map(issue).collect(),
        }
    }
}

/// Returns the line and column, both counted from 1, of a byte offset. Columns count characters.
fn position(source: &str, at: u32) -> (u32, u32) {
    let mut end = (at as usize).min(source.len());
    while !source.is_char_boundary(end) {
        end -= 1;
    }
    let before = &source[..end];
    let line = before.bytes().filter(|byte| *byte == b'\n').count();
    let column = before.chars().rev().take_while(|c| *c != '\n').count();
    (line as u32 + 1, column as u32 + 1)
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, issue) in self.issues.iter().enumerate() {
            let separator = if i > 0 { "\n" } else { "" };
            write!(
                f,
                "{separator}{}:{}: {}",
                issue.line, issue.column, issue.message
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for CompileError {}

/// The reason why a text is not a value, a literal, a pattern or a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Invalid(pub String);

impl From<&str> for Invalid {
    fn from(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

impl From<Invalid> for EvaluationError {
    fn from(invalid: Invalid) -> Self {
        Self::Failed(invalid.0)
    }
}

/// The reason why an evaluation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// The expression itself failed, for example on a missing key or in a conversion.
    #[error("{0}")]
    Failed(String),
    /// A limit of the [`Budget`](crate::Budget) was reached. Later evaluations with this budget
    /// fail, too.
    #[error("{0}")]
    Exhausted(Exhausted),
}

/// The limit that stopped an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exhausted {
    /// The limit on cost units.
    #[error("the expression costs more than its budget of {0} units")]
    Cost(u64),
    /// The limit on allocated bytes.
    #[error("the expression makes more than {0} bytes of values")]
    Memory(u64),
    /// The limit on the size of the result, in bytes.
    #[error("the expression's result is larger than {0} bytes")]
    Output(u64),
    /// The limit on the levels of nested evaluations or of a result.
    #[error("the expression's value is nested deeper than {0} levels")]
    Depth(u32),
    /// The deadline.
    #[error("the expression did not finish by its deadline")]
    Deadline,
}

impl EvaluationError {
    /// Creates an error of the expression itself.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// Returns the error, worded as in Kubernetes, for arguments that no overload accepts.
    pub(crate) fn no_overload() -> Self {
        Self::failed("no such overload")
    }

    /// True for an exhausted budget, which `||`, `exists` and the like must not absorb.
    pub fn is_exhausted(&self) -> bool {
        matches!(self, Self::Exhausted(_))
    }
}
