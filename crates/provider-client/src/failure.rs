//! Describes a failed call: the address, and whether connection, TLS, protocol or provider failed.

use std::{error::Error, fmt::Display, io};

use tautline_core::text;
use tonic::Status;

const MAX_MESSAGE_CHARS: usize = 512;

pub(crate) fn describe(address: &impl Display, status: &Status) -> String {
    match status.source() {
        // The status came over the wire.
        None => format!("{address} answered {}", status_text(status)),
        Some(cause) => format!("{address}: {}", cause_of(cause)),
    }
}

/// The text of a provider's status, sanitized.
pub(crate) fn status_text(status: &Status) -> String {
    let message = text::sanitize(status.message(), MAX_MESSAGE_CHARS);
    format!("{:?}: {message}", status.code())
}

fn cause_of(top: &(dyn Error + 'static)) -> String {
    let chain = || std::iter::successors(Some(top), |error| Error::source(*error));
    if let Some(io) = chain().find_map(|error| error.downcast_ref::<io::Error>()) {
        return match io.kind() {
            io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            io::ErrorKind::TimedOut => "no connection in time".to_owned(),
            io::ErrorKind::InvalidData => format!("TLS: {io}"),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionAborted => {
                format!("the connection was closed by the other side ({io})")
            }
            _ => io.to_string(),
        };
    }
    if let Some(h2) = chain().find(|error| error.to_string().contains("http2 error")) {
        let cause = h2
            .source()
            .map_or_else(|| h2.to_string(), ToString::to_string);
        return format!("the other side does not speak gRPC over HTTP/2 ({cause})");
    }
    let last = chain().last().map(ToString::to_string);
    last.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_text_sanitizes_and_cuts_messages() {
        let status = Status::failed_precondition("full\n\u{1b}[31m".to_owned() + &"x".repeat(9999));
        let text = status_text(&status);
        let expected = "FailedPrecondition: full \u{fffd}[31m";
        assert!(text.starts_with(expected) && text.len() < 600, "{text}");
    }
}
