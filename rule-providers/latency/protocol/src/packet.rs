//! The format of probe packets. A request and its reply have the same length, so a forged source
//! address gains an attacker no amplification.
//!
//! ```text
//!  0  magic "TL"   2  version 1   3  kind: 1 request, 2 reply   4  zero
//!  8  source: the initiator's echo id
//! 16  session: one number for each process of the initiator
//! 24  sequence: the initiator's count of requests to all its targets
//! 32  dwell: nanoseconds that the responder held the request; 0 in a request
//! 40  HMAC-SHA256 of bytes 0 to 39 by the pair key, its first 16 bytes
//! ```
//! Numbers are big-endian. Kind 3 is reserved.

use std::time::Duration;

use ring::hmac;

/// The length of every packet, in bytes.
pub const PACKET_BYTES: usize = 56;
const SIGNED_BYTES: usize = 40;
const TAG_BYTES: usize = PACKET_BYTES - SIGNED_BYTES;
/// The magic and the version.
const HEAD: [u8; 3] = [b'T', b'L', 1];

/// The bytes of a packet with its signature.
pub type PacketBytes = [u8; PACKET_BYTES];

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A packet from the initiator to the responder.
    Request,
    /// A packet from the responder back to the initiator.
    Reply,
}

/// The fields of a packet, without its signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The packet's kind: request or reply.
    pub kind: Kind,
    /// The initiator's echo id, also in a reply; greater than 0.
    pub source: u64,
    /// The number of the initiator's process; a later process has a higher number.
    pub session: u64,
    /// The request's number, which is greater than 0 and unique in a session; a reply repeats it.
    pub sequence: u64,
    /// The time that the responder held the request: 0 in a request, `u64::MAX` ns if unknown.
    pub dwell: Duration,
}

/// A reason why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The length in bytes, which is not [`PACKET_BYTES`].
    #[error("{0} bytes, expected 56")]
    Length(usize),
    /// The magic or the version is wrong, or bytes 4 to 7 are not 0.
    #[error("not version 1 of this protocol")]
    Version,
    /// Byte 3 is neither 1 nor 2.
    #[error("neither a request nor a reply")]
    Kind,
    /// Source or sequence is 0, or a request has a dwell.
    #[error("source or sequence is 0, or a request has a dwell")]
    Numbers,
}

impl Packet {
    /// Returns the signed packet. A dwell above `u64::MAX` ns becomes `u64::MAX` ns.
    pub fn seal(&self, key: &hmac::Key) -> PacketBytes {
        let mut bytes = [0; PACKET_BYTES];
        bytes[..3].copy_from_slice(&HEAD);
        bytes[3] = match self.kind {
            Kind::Request => 1,
            Kind::Reply => 2,
        };
        let dwell = u64::try_from(self.dwell.as_nanos()).unwrap_or(u64::MAX);
        let numbers = [self.source, self.session, self.sequence, dwell];
        for (field, number) in bytes[8..SIGNED_BYTES].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_be_bytes());
        }
        let tag = hmac::sign(key, &bytes[..SIGNED_BYTES]);
        bytes[SIGNED_BYTES..].copy_from_slice(&tag.as_ref()[..TAG_BYTES]);
        bytes
    }

    /// Parses a packet without checking its signature: see [`is_authentic`].
    pub fn parse(bytes: &[u8]) -> Result<(Self, &PacketBytes), Malformed> {
        let bytes: &PacketBytes = bytes
            .try_into()
            .map_err(|_| Malformed::Length(bytes.len()))?;
        if bytes[..3] != HEAD || bytes[4..8] != [0; 4] {
            return Err(Malformed::Version);
        }
        let kind = match bytes[3] {
            1 => Kind::Request,
            2 => Kind::Reply,
            _ => return Err(Malformed::Kind),
        };
        let [source, session, sequence, dwell] = [8, 16, 24, 32].map(|at| number(bytes, at));
        let dwell_in_request = kind == Kind::Request && dwell != 0;
        if source == 0 || sequence == 0 || dwell_in_request {
            return Err(Malformed::Numbers);
        }
        let packet = Self {
            kind,
            source,
            session,
            sequence,
            dwell: Duration::from_nanos(dwell),
        };
        Ok((packet, bytes))
    }
}

/// Returns whether the packet was signed with the key. It runs in constant time.
pub fn is_authentic(bytes: &PacketBytes, key: &hmac::Key) -> bool {
    let tag = hmac::sign(key, &bytes[..SIGNED_BYTES]);
    // The comparison takes constant time, because it covers all bytes.
    let pairs = tag.as_ref()[..TAG_BYTES].iter().zip(&bytes[SIGNED_BYTES..]);
    pairs.fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

fn number(bytes: &PacketBytes, at: usize) -> u64 {
    bytes[at..at + 8]
        .iter()
        .fold(0, |n, byte| n << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{pair_key, signing_key};

    fn pair(responder: &[u8], initiator: u64) -> hmac::Key {
        signing_key(pair_key(&signing_key(responder), initiator))
    }

    #[test]
    fn parse_accepts_only_packets() {
        proptest!(|(bytes in proptest::collection::vec(any::<u8>(), 0..130))| {
            prop_assert!(Packet::parse(&bytes).is_err());
        });
        proptest!(|(mut bytes in any::<[u8; 32]>(), kind in 0_u8..5)| {
            let mut whole = [0; PACKET_BYTES];
            bytes[0] |= 1;
            whole[8..40].copy_from_slice(&bytes);
            whole[..3].copy_from_slice(&HEAD);
            whole[3] = kind;
            match Packet::parse(&whole) {
                Ok((packet, _)) => {
                    let sealed = packet.seal(&signing_key(b"k"));
                    prop_assert_eq!(&sealed[..SIGNED_BYTES], &whole[..SIGNED_BYTES]);
                }
                Err(Malformed::Kind) => prop_assert!(!(1..=2).contains(&kind)),
                Err(error) => prop_assert_eq!(error, Malformed::Numbers),
            }
        });
    }

    #[test]
    fn sealed_packet_parses_back_and_any_changed_bit_is_detected() {
        proptest!(|(source in 1_u64.., session: u64, sequence in 1_u64.., dwell: u64,
                    reply: bool, bit in 0..PACKET_BYTES * 8)| {
            let kind = if reply { Kind::Reply } else { Kind::Request };
            let dwell = Duration::from_nanos(if reply { dwell } else { 0 });
            let packet = Packet { kind, source, session, sequence, dwell };
            let key = pair(b"responder", source);
            let mut bytes = packet.seal(&key);
            prop_assert_eq!(Packet::parse(&bytes).unwrap().0, packet);
            prop_assert!(is_authentic(&bytes, &key));
            prop_assert!(!is_authentic(&bytes, &pair(b"another", source)));
            prop_assert!(!is_authentic(&bytes, &pair(b"responder", source ^ 1)));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!is_authentic(&bytes, &key));
        });
    }

    #[test]
    fn sealed_packet_matches_the_test_vector() {
        let packet = Packet {
            kind: Kind::Reply,
            source: 7,
            session: 8,
            sequence: 9,
            dwell: Duration::from_micros(1),
        };
        let bytes = packet.seal(&pair(&[1; 32], 7));
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        // As Python's hmac and struct compute it.
        let expected = "544c01020000000000000000000000070000000000000008000000000000000900000000000003e8\
                        ca6ab48ca583cc51a974021bfff5a52a";
        assert_eq!(hex, expected);
    }
}
