//! Writes to the process's standard output and standard error. Every command prints through this
//! module, since `print!` and `eprintln!` panic when the other end of a pipe is closed.

use std::{
    fmt,
    io::{self, Write},
};

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

/// Prints `value` as `table` makes it, or as JSON or YAML.
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

/// Prints text. A closed pipe, as with `head`, is no error: the exit code stays the same.
pub(crate) fn write(text: &str) -> Result<()> {
    match try_write(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Prints text; a closed pipe is an error, for commands that run until it closes.
pub(crate) fn try_write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Prints a line on standard error, if that is still open.
pub(crate) fn write_note(line: fmt::Arguments<'_>) {
    _ = io::stderr()
        .lock()
        .write_all(format!("{line}\n").as_bytes());
}

/// Prints a line on standard error, as `eprintln!` does, but without its panic.
macro_rules! note {
    ($($line:tt)*) => { $crate::output::write_note(format_args!($($line)*)) };
}
