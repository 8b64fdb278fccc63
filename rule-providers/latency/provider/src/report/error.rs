use super::names;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReportError {
    #[error("there is no {what} {name}{}", names::near_text(near))]
    Unknown {
        what: &'static str,
        name: String,
        near: Vec<String>,
    },
    #[error("{count} {what}, and at most {most} can be shown; {fix}")]
    TooMany {
        count: usize,
        what: &'static str,
        most: usize,
        fix: &'static str,
    },
    #[error("{field}: {what}")]
    Query { field: String, what: String },
}

impl ReportError {
    pub fn status(&self) -> u16 {
        match self {
            Self::Unknown { .. } => 404,
            Self::TooMany { .. } | Self::Query { .. } => 400,
        }
    }
}
