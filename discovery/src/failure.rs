//! What went wrong in a call, for people: who was called, and whether the connection,
//! TLS, the protocol or the provider itself is at fault.

use std::{error::Error, io};

use tautline_core::providers::Address;
use tonic::Status;

/// A failed call as one line.
pub(crate) fn text(address: &Address, status: &Status) -> String {
    match status.source() {
        // It came over the wire.
        None => format!(
            "{address} answered {:?}: {}",
            status.code(),
            status.message()
        ),
        Some(cause) => format!("{address}: {}", cause_of(cause)),
    }
}

/// The first cause in the chain that says more than that a transport failed.
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
