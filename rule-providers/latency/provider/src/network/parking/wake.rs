//! The packet that wakes an agent: as long as an echo's request, and answered by
//! nothing. Its layout is the echo's (kind 3, source 0, sequence 1); its session is
//! the key of the park that it ends, so that it says something once.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::keys::Keys;

pub(super) type Packet = [u8; 56];

const HEAD: [u8; 8] = [b'T', b'L', 1, 3, 0, 0, 0, 0];
const SIGNED: usize = 40;

/// A wake for an instance, signed by what it and providers alone know.
pub(super) fn packet(keys: &Keys, instance: &str, key: u64) -> Packet {
    let mut bytes = [0; 56];
    bytes[..8].copy_from_slice(&HEAD);
    bytes[16..24].copy_from_slice(&key.to_be_bytes());
    bytes[24..32].copy_from_slice(&1_u64.to_be_bytes());
    let tag = keys.sign_wake(instance, &bytes[..SIGNED]);
    for (byte, tag) in bytes[SIGNED..].iter_mut().zip(tag.as_ref()) {
        *byte = *tag;
    }
    bytes
}

/// A socket of each family, once it is needed.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Sockets {
    /// A packet that cannot be sent is as good as lost.
    pub fn send(&mut self, to: SocketAddr, packet: &Packet) {
        let (socket, any) = match to {
            SocketAddr::V4(_) => (&mut self.v4, Ipv4Addr::UNSPECIFIED.into()),
            SocketAddr::V6(_) => (&mut self.v6, Ipv6Addr::UNSPECIFIED.into()),
        };
        let sent = match socket {
            Some(socket) => socket.send_to(packet, to),
            None => bind(SocketAddr::new(any, 0)).and_then(|new| {
                let new = socket.insert(new);
                new.send_to(packet, to)
            }),
        };
        if let Err(error) = sent {
            tracing::debug!(%to, %error, "a wake was not sent");
        }
    }
}

fn bind(any: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind(any)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[test]
fn the_packet_is_as_agents_read_it() {
    let keys = Keys::of(b"0123456789abcdef", "here").unwrap();
    let hex: String = packet(&keys, "uid/boot", 9)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    // As Python's hmac and struct have it; the agent's own tests have the same.
    let expected = "544c0103000000000000000000000000000000000000000900000000000000010000000000000000\
                    ab1b60db1a74318b470841c0979e4edc";
    assert_eq!(hex, expected);
}
