//! Log output.

mod filter;

use std::io::IsTerminal;

use tracing_subscriber::fmt;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts the log on standard error. `filter` is a level or tracing's directives ("info",
/// "tautline_provider_client=debug"). A second call has no effect.
///
/// # Errors
/// The filter is malformed, or a bare target, which usually is a misspelt level.
pub fn init(format: LogFormat, filter: &str) -> Result<(), String> {
    let filter = filter::parse(filter).map_err(|e| {
        format!("log filter {filter:?}: {e}; write a level such as info, or target=level")
    })?;
    let colour = std::io::stderr().is_terminal();
    let builder = fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour);
    _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}
