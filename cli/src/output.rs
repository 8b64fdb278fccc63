//! Writes to the process's standard output and standard error. Every command prints through this
//! module, since `print!` and `eprintln!` panic when the other end of a pipe is closed.

use std::{
    fmt, fs,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use tautline_report::Report;

use crate::exit_code;

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

/// The output of a report with cases.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum ReportOutput {
    /// For people
    #[default]
    Table,
    Json,
    /// Test Anything Protocol, version 13
    Tap,
    /// XML for CI systems
    Junit,
}

/// Prints a report, for people as `table` and for programs as `json`, and returns its exit code.
/// With JUnit the failures are printed on standard error too.
pub(crate) fn print_report(
    output: ReportOutput,
    report: &Report,
    json: &impl Serialize,
    table: impl FnOnce() -> String,
    failures: impl FnOnce() -> String,
) -> Result<ExitCode> {
    let text = match output {
        ReportOutput::Table => table(),
        ReportOutput::Json => serde_json::to_string_pretty(json)? + "\n",
        ReportOutput::Tap => report.tap(),
        ReportOutput::Junit => report.junit(),
    };
    write(&text)?;
    let is_ok = report.failed() == 0;
    if matches!(output, ReportOutput::Junit) && !is_ok {
        // The log of a CI job does not show the file with the report.
        write_note(format_args!("{}", failures().trim_end()));
    }
    Ok(exit_code(is_ok))
}

/// Prints text. A closed pipe, as with `head`, is no error: the exit code stays the same.
pub(crate) fn write(text: &str) -> Result<()> {
    match try_write(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Writes a file into a folder, which it makes if there is none.
pub(crate) fn write_file(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, text));
    written.with_context(|| path.display().to_string())
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
