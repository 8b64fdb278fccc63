//! Defines the probe protocol of latency agents: the UDP packets, and the keys that sign them. The
//! provider derives the keys from its secret, so that no node can sign for another. The crate does
//! no I/O and reads no clock.

#![warn(missing_docs)]

mod keys;
mod packet;

pub use keys::{echo_id, pair_key, responder_key, signing_key};
pub use packet::{Kind, Malformed, PACKET_BYTES, Packet, PacketBytes, is_authentic};
