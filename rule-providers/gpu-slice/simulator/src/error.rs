use std::{fmt, io, path::PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLocation {
    pub file: PathBuf,
    pub line: u64,
    pub column: Option<String>,
}

impl fmt::Display for FileLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ", line {}", self.line)?;
        }
        match &self.column {
            Some(column) => write!(f, ", column {column}"),
            None => Ok(()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{} cannot be read: {source}", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{} cannot be written: {source}", file.display())]
    Write { file: PathBuf, source: io::Error },
    #[error("{location}: {wrong}")]
    Content {
        location: FileLocation,
        wrong: String,
    },
    #[error("{0}")]
    Invalid(String),
}
