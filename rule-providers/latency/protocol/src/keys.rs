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

/// A key of 32 bytes that is derived from the provider's secret.
#[derive(Clone, Copy)]
pub struct DerivedKey(hmac::Tag);

impl DerivedKey {
    /// Returns the 32 bytes that agents receive.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// Returns an HMAC key that signs packets or derives further keys.
    pub fn signing_key(&self) -> hmac::Key {
        signing_key(self.as_bytes())
    }
}

/// Returns an HMAC-SHA256 key made of a secret or of the bytes of a derived key.
pub fn signing_key(bytes: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, bytes)
}

/// Returns the key of the responder whose instance is `UID/BOOT` of its node.
pub fn responder_key(secret: &hmac::Key, instance: &str) -> DerivedKey {
    let mut context = hmac::Context::with_key(secret);
    context.update(b"responder");
    context.update(instance.as_bytes());
    DerivedKey(context.sign())
}

/// Returns the key that signs the packets between an initiator, given by its echo id, and a
/// responder.
pub fn pair_key(responder: &hmac::Key, initiator: u64) -> DerivedKey {
    DerivedKey(hmac::sign(responder, &initiator.to_be_bytes()))
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
            hex(responder.as_bytes()),
            "fe68234c80c9e31e6d0f94d90de177ffeef4a819192fe4daf12989486b988539"
        );
    }

    #[test]
    fn pair_key_is_specific_to_initiator_and_responder() {
        let secret = signing_key(b"0123456789abcdef");
        let key = |from: &str, to: &str| {
            let responder = responder_key(&secret, to).signing_key();
            hex(pair_key(&responder, echo_id(from)).as_bytes())
        };
        assert_eq!(key("i", "r"), key("i", "r"));
        assert_ne!(key("i", "r"), key("x", "r"));
        assert_ne!(key("i", "r"), key("r", "i"));
    }
}
