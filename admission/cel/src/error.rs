//! What is wrong with an expression, and what went wrong in running one.

use std::fmt;

/// An expression that is refused. Display shows every finding, a line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// Line of the first finding, counted from 1.
    pub line: u32,
    /// Column of the first finding in characters, counted from 1.
    pub column: u32,
    /// What is wrong there, and what would do.
    pub message: String,
    /// The findings after the first, in the order of the source.
    pub more: Vec<Issue>,
}

/// One thing wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Line, counted from 1.
    pub line: u32,
    /// Column in characters, counted from 1.
    pub column: u32,
    /// What is wrong there.
    pub message: String,
}

impl CompileError {
    /// The refusal for what was found at byte offsets of the source.
    pub(crate) fn at(source: &str, mut found: Vec<(u32, String)>) -> Self {
        found.sort();
        found.dedup();
        let mut all = found.into_iter().map(|(at, message)| {
            let (line, column) = position(source, at);
            Issue {
                line,
                column,
                message,
            }
        });
        let first = all.next().unwrap_or_else(|| Issue {
            line: 1,
            column: 1,
            message: "refused".to_owned(),
        });
        Self {
            line: first.line,
            column: first.column,
            message: first.message,
            more: all.collect(),
        }
    }
}

/// Line and column, both from 1, of a byte offset; columns count characters.
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
        write!(f, "{}:{}: {}", self.line, self.column, self.message)?;
        for each in &self.more {
            write!(f, "\n{}:{}: {}", each.line, each.column, each.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for CompileError {}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// The expression itself: a missing key, a failed conversion, and so on.
    #[error("{0}")]
    Failed(String),
    /// A bound of the [`Budget`](crate::Budget) is reached; nothing absorbs
    /// this, and every later expression of the budget ends the same way.
    #[error("{0}")]
    Exhausted(Exhausted),
}

/// The bound that stopped an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exhausted {
    /// More cost units than allowed.
    #[error("the expression costs more than its budget of {0} units")]
    Cost(u64),
    /// More bytes of strings, lists and maps made than allowed.
    #[error("the expression makes more than {0} bytes of values")]
    Memory(u64),
    /// A result larger than allowed.
    #[error("the expression's result is larger than {0} bytes")]
    Output(u64),
    /// A value nested deeper than allowed.
    #[error("the expression's value is nested deeper than {0} levels")]
    Depth(u32),
    /// Not done in time.
    #[error("the expression is not done by its deadline")]
    Deadline,
}

impl EvaluationError {
    /// A failure of the expression itself.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// No function for these types: what the server says, too.
    pub(crate) fn no_overload() -> Self {
        Self::failed("no such overload")
    }

    /// True when a bound stopped it, which `||`, `exists` and the like must
    /// not absorb.
    pub fn is_exhausted(&self) -> bool {
        matches!(self, Self::Exhausted(_))
    }
}
