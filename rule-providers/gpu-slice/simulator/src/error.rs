use std::{io, path::PathBuf};

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
    #[error("{place}: {wrong}")]
    /// A file of the trace has invalid content.
    Content {
        /// Path of the file, with the line and the column if they are known.
        place: String,
        /// Description of the error, and of what to write instead.
        wrong: String,
    },
    #[error("{0}")]
    /// Arguments or files do not fit together; the text is the whole message.
    Invalid(String),
}
