use std::{fmt, io, path::PathBuf};

/// A place in a file of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLocation {
    /// Path of the file, with `.gz` if it is compressed.
    pub file: PathBuf,
    /// The first line is 1; 0: not known.
    pub line: u64,
    /// Name of the column; `None`: the whole line.
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

/// The reason why a trace cannot be used or a report not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{} cannot be read: {source}", file.display())]
    /// A file or folder of the trace cannot be read.
    Read {
        /// Its path.
        file: PathBuf,
        /// The error of the system, or of decompression.
        source: io::Error,
    },
    #[error("{} cannot be written: {source}", file.display())]
    /// A file of the report cannot be written.
    Write {
        /// Its path.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    #[error("{location}: {wrong}")]
    /// A file of the trace has invalid content.
    Content {
        /// Where it is.
        location: FileLocation,
        /// What is wrong, and what to write.
        wrong: String,
    },
    #[error("{0}")]
    /// The whole message about arguments or files that do not fit together.
    Invalid(String),
}
