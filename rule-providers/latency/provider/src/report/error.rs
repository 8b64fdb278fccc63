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
    /// Creates the error of an unknown name; `all` are the known ones.
    pub fn unknown<'a>(what: &'static str, name: &str, all: impl Iterator<Item = &'a str>) -> Self {
        Self::Unknown {
            what,
            name: name.to_owned(),
            near: names::near(name, all),
        }
    }

    pub fn query(field: &str, what: impl Into<String>) -> Self {
        Self::Query {
            field: field.to_owned(),
            what: what.into(),
        }
    }

    pub fn status(&self) -> u16 {
        match self {
            Self::Unknown { .. } => 404,
            Self::TooMany { .. } | Self::Query { .. } => 400,
        }
    }
}
