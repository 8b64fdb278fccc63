//! The probe protocol of latency agents: their UDP packets, and the keys that the provider derives
//! from its secret to sign them. No I/O, no clock.

#![warn(missing_docs)]

mod keys;
mod packet;

pub use keys::{DerivedKey, echo_id, pair_key, responder_key, signing_key};
pub use packet::{Kind, Malformed, PACKET_BYTES, Packet, PacketBytes, is_authentic};
