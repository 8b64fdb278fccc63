//! The probe protocol of latency agents: the UDP packets that they exchange, and the
//! keys that sign them. Agents send and answer packets; the provider derives the keys
//! from its secret and hands them out. No I/O, no clock.

mod keys;
mod packet;

pub use keys::{DerivedKey, echo_id, pair_key, responder_key, signing_key};
pub use packet::{Kind, Malformed, PACKET_BYTES, Packet, PacketBytes, is_authentic};
