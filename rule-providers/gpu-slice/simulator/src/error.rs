use std::{fmt, io, path::PathBuf};

/// A place in a file of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLocation {
    /// Path of the file, with `.gz` if it is compressed.
    pub file: PathBuf,
    /// Number of the line, from 1; 0: not known.
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

/// The reasons why a trace cannot be used or a report cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{} cannot be read: {source}", file.display())]
    /// A file or folder of the trace cannot be read.
    Read {
        /// Path of the file or folder.
        file: PathBuf,
        /// The error of the system, or of decompression.
        source: io::Error,
    },
    #[error("{} cannot be written: {source}", file.display())]
    /// A file of the report cannot be written.
    Write {
        /// Path of the file.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    #[error("{location}: {wrong}")]
    /// A file of the trace has invalid content.
    Content {
        /// Place of the invalid content.
        location: FileLocation,
        /// Description of the error, and of what to write instead.
        wrong: String,
    },
    #[error("{0}")]
    /// Arguments or files do not fit together; the text is the whole message.
    Invalid(String),
}
