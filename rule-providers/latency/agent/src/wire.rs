//! The echo's packet. A request and its reply are of the same length, so that
//! nobody gains by having a reply sent elsewhere.
//!
//! ```text
//!  0  magic "TL"   2  version 1   3  kind: 1 request, 2 reply, 3 wake   4  zero
//!  8  source: the initiator's echo id; 0 in a wake, which a provider sends
//! 16  session: of the initiator's process; in a wake the key of the park it ends
//! 24  sequence: of the initiator, to all responders together; 1 in a wake
//! 32  dwell: nanoseconds at the responder; 0 in a request
//! 40  HMAC-SHA256 of the above, its first 16 bytes
//! ```
//! Numbers are big-endian. The key of the packets i -> r, both ways, is
//! HMAC-SHA256(K_r, i's echo id as 8 bytes): r works it out, i is told it.

use std::time::Duration;

use ring::hmac;

/// Of every packet.
pub const LEN: usize = 56;
const SIGNED: usize = 40;
const TAG: usize = LEN - SIGNED;
const HEAD: [u8; 3] = [b'T', b'L', 1];

/// A packet's bytes.
pub type Bytes = [u8; LEN];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    Reply,
    Wake,
}

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub kind: Kind,
    /// The initiator's echo id, in a reply too.
    pub source: u64,
    /// Another in each process of an initiator.
    pub session: u64,
    /// Above 0; never twice in a session.
    pub sequence: u64,
    /// How long the responder had the request.
    pub dwell: Duration,
}

/// Bytes that are no packet of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("{0} bytes, not 56")]
    Length(usize),
    #[error("not of version 1 of this protocol")]
    Version,
    #[error("neither a request nor a reply nor a wake")]
    Kind,
    #[error("a number is 0 that must not be, or is not that must")]
    Numbers,
}

/// The key of the packets from an initiator to the responder that has `key`.
pub fn pair_key(key: &hmac::Key, initiator: u64) -> hmac::Key {
    let derived = hmac::sign(key, &initiator.to_be_bytes());
    hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())
}

impl Packet {
    /// The packet with its HMAC.
    pub fn seal(&self, key: &hmac::Key) -> Bytes {
        let mut bytes = [0; LEN];
        bytes[..3].copy_from_slice(&HEAD);
        bytes[3] = match self.kind {
            Kind::Request => 1,
            Kind::Reply => 2,
            Kind::Wake => 3,
        };
        let dwell = u64::try_from(self.dwell.as_nanos()).unwrap_or(u64::MAX);
        let numbers = [self.source, self.session, self.sequence, dwell];
        for (field, number) in bytes[8..SIGNED].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_be_bytes());
        }
        let tag = hmac::sign(key, &bytes[..SIGNED]);
        bytes[SIGNED..].copy_from_slice(&tag.as_ref()[..TAG]);
        bytes
    }

    /// What the bytes say, if they are a packet. Nothing of it is proven yet:
    /// see [`genuine`].
    pub fn parse(bytes: &[u8]) -> Result<(Self, &Bytes), Malformed> {
        let bytes: &Bytes = bytes
            .try_into()
            .map_err(|_| Malformed::Length(bytes.len()))?;
        if bytes[..3] != HEAD || bytes[4..8] != [0; 4] {
            return Err(Malformed::Version);
        }
        let kind = match bytes[3] {
            1 => Kind::Request,
            2 => Kind::Reply,
            3 => Kind::Wake,
            _ => return Err(Malformed::Kind),
        };
        let [source, session, sequence, dwell] = [8, 16, 24, 32].map(|at| number(bytes, at));
        let packet = Self {
            kind,
            source,
            session,
            sequence,
            dwell: Duration::from_nanos(dwell),
        };
        let dwells = kind != Kind::Reply && dwell != 0;
        let nobodys = (source == 0) != (kind == Kind::Wake);
        if dwells || nobodys || sequence == 0 {
            return Err(Malformed::Numbers);
        }
        Ok((packet, bytes))
    }
}

/// Whether the holder of `key` made the packet.
pub fn genuine(bytes: &Bytes, key: &hmac::Key) -> bool {
    let tag = hmac::sign(key, &bytes[..SIGNED]);
    // Every byte is looked at, so that the time taken tells nothing of the tag.
    let differ = tag.as_ref()[..TAG].iter().zip(&bytes[SIGNED..]);
    differ.fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

fn number(bytes: &Bytes, at: usize) -> u64 {
    bytes[at..at + 8]
        .iter()
        .fold(0, |n, byte| n << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(seed: &[u8]) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, seed)
    }

    #[test]
    fn any_bytes_are_a_packet_or_an_error() {
        proptest!(|(bytes in proptest::collection::vec(any::<u8>(), 0..130))| {
            prop_assert!(Packet::parse(&bytes).is_err());
        });
        // From the version on, so that the rest of the parser is reached.
        proptest!(|(mut bytes in any::<[u8; 32]>(), kind in 0_u8..5)| {
            let mut whole = [0; LEN];
            bytes[0] |= 1;
            whole[8..40].copy_from_slice(&bytes);
            whole[..3].copy_from_slice(&HEAD);
            whole[3] = kind;
            match Packet::parse(&whole) {
                Ok((packet, _)) => {
                    let sealed = packet.seal(&key(b"k"));
                    prop_assert_eq!(&sealed[..SIGNED], &whole[..SIGNED]);
                }
                Err(Malformed::Kind) => prop_assert!(kind == 0 || kind == 4),
                Err(error) => prop_assert_eq!(error, Malformed::Numbers),
            }
        });
    }

    #[test]
    fn sealed_packets_come_back_and_no_bit_may_change() {
        proptest!(|(source in 1_u64.., session: u64, sequence in 1_u64.., dwell: u64,
                    reply: bool, bit in 0..LEN * 8)| {
            let kind = if reply { Kind::Reply } else { Kind::Request };
            let dwell = Duration::from_nanos(if reply { dwell } else { 0 });
            let packet = Packet { kind, source, session, sequence, dwell };
            let k = pair_key(&key(b"responder"), source);
            let mut bytes = packet.seal(&k);
            prop_assert_eq!(Packet::parse(&bytes).unwrap().0, packet);
            prop_assert!(genuine(&bytes, &k));
            prop_assert!(!genuine(&bytes, &pair_key(&key(b"another"), source)));
            prop_assert!(!genuine(&bytes, &pair_key(&key(b"responder"), source ^ 1)));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!genuine(&bytes, &k));
        });
    }

    #[test]
    fn a_providers_wake_is_read() {
        // For "uid/boot", of the secret "0123456789abcdef", as the provider's tests have it.
        let own: [u8; 32] =
            unhex("fe68234c80c9e31e6d0f94d90de177ffeef4a819192fe4daf12989486b988539");
        let bytes: Bytes = unhex(
            "544c0103000000000000000000000000000000000000000900000000000000010000000000000000\
             ab1b60db1a74318b470841c0979e4edc",
        );
        let (packet, bytes) = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.kind, packet.session), (Kind::Wake, 9));
        assert!(genuine(bytes, &pair_key(&key(&own), 0)));
        assert!(!genuine(bytes, &pair_key(&key(&own), 1)));
    }

    fn unhex<const N: usize>(text: &str) -> [u8; N] {
        std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
    }

    #[test]
    fn the_wire_does_not_change_by_accident() {
        let packet = Packet {
            kind: Kind::Reply,
            source: 7,
            session: 8,
            sequence: 9,
            dwell: Duration::from_micros(1),
        };
        let hex: String = packet
            .seal(&pair_key(&key(&[1; 32]), 7))
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        // As Python's hmac and struct have it.
        let expected = "544c01020000000000000000000000070000000000000008000000000000000900000000000003e8\
                        ca6ab48ca583cc51a974021bfff5a52a";
        assert_eq!(hex, expected);
    }
}
