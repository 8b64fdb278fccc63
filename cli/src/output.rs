//! Output for programs.

use std::io::{self, Write};

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    #[default]
    Table,
    Json,
    Yaml,
}

/// Prints `value`, as a table by `table` or for programs.
pub(crate) fn print<T: Serialize>(
    output: Output,
    value: &T,
    table: impl FnOnce(&T) -> String,
) -> Result<()> {
    let text = match output {
        Output::Table => table(value),
        Output::Json => serde_json::to_string_pretty(value)? + "\n",
        Output::Yaml => serde_saphyr::to_string(value)?,
    };
    write(&text)
}

/// Prints text, to whoever still reads it.
pub(crate) fn write(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever read this, such as `head`, has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
