//! Frames that share one stream among connections: connection and length, both u32 big-endian,
//! then the payload.

use crate::{error::Error, ttrpc};

/// The runtime calls the plugin.
pub(crate) const PLUGIN: u32 = 1;
/// The plugin calls the runtime.
pub(crate) const RUNTIME: u32 = 2;

const HEADER: usize = 8;
const LONGEST: usize = ttrpc::HEADER + ttrpc::LONGEST;
/// Runtimes read a frame into a buffer of this size; a longer one ends the connection.
const CHUNK: usize = 4096;

/// Splits a stream into pieces of its connections, without keeping payloads.
#[derive(Debug, Default)]
pub(crate) struct Demux {
    header: [u8; HEADER],
    filled: usize,
    left: usize,
}

impl Demux {
    /// Takes the next piece from the front of `bytes`; `None` once they are used up.
    pub(crate) fn next<'a>(
        &mut self,
        bytes: &mut &'a [u8],
    ) -> Result<Option<(u32, &'a [u8])>, Error> {
        loop {
            if self.filled < HEADER {
                let part = take(bytes, HEADER - self.filled);
                self.header[self.filled..self.filled + part.len()].copy_from_slice(part);
                self.filled += part.len();
                if self.filled < HEADER {
                    return Ok(None);
                }
                self.left = be(&self.header[4..]) as usize;
                if self.left > LONGEST {
                    return Err(Error::Protocol(format!(
                        "a frame of {} bytes; the longest is {LONGEST}",
                        self.left
                    )));
                }
            }
            if self.left == 0 {
                self.filled = 0;
                continue;
            }
            if bytes.is_empty() {
                return Ok(None);
            }
            let part = take(bytes, self.left);
            self.left -= part.len();
            if self.left == 0 {
                self.filled = 0;
            }
            return Ok(Some((be(&self.header), part)));
        }
    }
}

/// The frames of one message.
pub(crate) fn frames(connection: u32, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + (message.len() / CHUNK + 1) * HEADER);
    for chunk in message.chunks(CHUNK) {
        out.extend_from_slice(&connection.to_be_bytes());
        out.extend_from_slice(&(chunk.len() as u32).to_be_bytes());
        out.extend_from_slice(chunk);
    }
    out
}

fn take<'a>(bytes: &mut &'a [u8], at_most: usize) -> &'a [u8] {
    let (part, rest) = bytes.split_at(at_most.min(bytes.len()));
    *bytes = rest;
    part
}

/// The u32 at the front of at least four bytes.
pub(crate) fn be(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |n, b| n << 8 | u32::from(*b))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn split(stream: &[u8], step: usize) -> Result<BTreeMap<u32, Vec<u8>>, Error> {
        let mut demux = Demux::default();
        let mut read: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for mut bytes in stream.chunks(step.max(1)) {
            while let Some((id, part)) = demux.next(&mut bytes)? {
                read.entry(id).or_default().extend_from_slice(part);
            }
            assert!(bytes.is_empty());
        }
        Ok(read)
    }

    #[test]
    fn oversize_frames_are_refused() {
        let mut frame = frames(PLUGIN, b"x");
        frame[4..8].copy_from_slice(&(LONGEST as u32 + 1).to_be_bytes());
        let error = split(&frame, 3).unwrap_err().to_string();
        assert!(error.contains("a frame of 4194315 bytes"), "{error}");
    }

    proptest! {
        #[test]
        fn payloads_survive_any_split(
            messages in prop::collection::vec((1u32..4, prop::collection::vec(any::<u8>(), 1..10_000)), 0..6),
            step in 1usize..9000,
        ) {
            let mut stream = Vec::new();
            let mut sent: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
            for (id, message) in &messages {
                stream.extend(frames(*id, message));
                stream.extend([0, 0, 0, 9, 0, 0, 0, 0]); // an empty frame
                sent.entry(*id).or_default().extend_from_slice(message);
            }
            prop_assert_eq!(split(&stream, step).unwrap(), sent);
        }

        #[test]
        fn garbage_never_panics(stream in prop::collection::vec(any::<u8>(), 0..300), step in 1usize..50) {
            _ = split(&stream, step);
        }
    }
}
