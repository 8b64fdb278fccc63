//! Derives the keys of the probe packets by HMAC-SHA256:
//!
//! ```text
//! responder key of r       = HMAC(secret, "responder" + instance of r)
//! pair key of i asking r   = HMAC(responder key of r, echo id of i, 8 bytes big-endian)
//! ```
//!
//! The provider knows the secret. A responder knows its own key and derives the pair key
//! of any initiator. An initiator knows only the pair keys of its targets, so no node can
//! sign for another.

use ring::{digest, hmac};

/// Returns an HMAC-SHA256 key made of a secret or of the bytes of a derived key.
pub fn signing_key(bytes: impl AsRef<[u8]>) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, bytes.as_ref())
}

/// Returns the key of 32 bytes of the responder whose instance is `UID/BOOT` of its node.
pub fn responder_key(secret: &hmac::Key, instance: &str) -> hmac::Tag {
    let mut context = hmac::Context::with_key(secret);
    context.update(b"responder");
    context.update(instance.as_bytes());
    context.sign()
}

/// Returns the key of 32 bytes that signs the packets between an initiator, given by its echo id, and a
/// responder.
pub fn pair_key(responder: &hmac::Key, initiator: u64) -> hmac::Tag {
    hmac::sign(responder, &initiator.to_be_bytes())
}

/// Returns the number that identifies an instance in packets: the first eight bytes of the SHA-256
/// of its name.
pub fn echo_id(instance: &str) -> u64 {
    let hash = digest::digest(&digest::SHA256, instance.as_bytes());
    let first = hash.as_ref().iter().take(8);
    first.fold(0, |id, byte| id << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn derived_keys_match_the_test_vectors() {
        // The first bytes of `printf i | sha256sum`.
        assert_eq!(echo_id("i"), 0xde7d_1b72_1a1e_0632);
        // As Python's hmac computes it.
        let responder = responder_key(&signing_key(b"0123456789abcdef"), "uid/boot");
        assert_eq!(
            hex(responder.as_ref()),
            "fe68234c80c9e31e6d0f94d90de177ffeef4a819192fe4daf12989486b988539"
        );
    }

    #[test]
    fn pair_key_is_specific_to_initiator_and_responder() {
        let secret = signing_key(b"0123456789abcdef");
        let key = |from: &str, to: &str| {
            let responder = signing_key(responder_key(&secret, to));
            hex(pair_key(&responder, echo_id(from)).as_ref())
        };
        assert_eq!(key("i", "r"), key("i", "r"));
        assert_ne!(key("i", "r"), key("x", "r"));
        assert_ne!(key("i", "r"), key("r", "i"));
    }
}
