use std::net::{IpAddr, SocketAddr};

use tautline_agent_link::{MAX_NODE_NAME_BYTES, is_node_name};
use tautline_proto::latency::Hello;
use tonic::Status;

const MAX_BOOT_ID_BYTES: usize = 64;

pub(super) fn check(hello: &Hello, remote: Option<IpAddr>) -> Result<(), Status> {
    let refuse = |field: &str, expected: &str| {
        let node: String = hello.node.chars().take(MAX_NODE_NAME_BYTES).collect();
        Err(Status::invalid_argument(format!(
            "Hello of node {node:?}, {field}: {expected}"
        )))
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if !is_node_name(&hello.node) {
        let expected = "expected the name of a Node: up to 253 letters, digits, `-` and `.`";
        return refuse("node", expected);
    }
    let length = 1..=MAX_BOOT_ID_BYTES;
    if !length.contains(&hello.boot_id.len()) || !hello.boot_id.bytes().all(plain) {
        return refuse(
            "bootId",
            "expected what /proc/sys/kernel/random/boot_id holds",
        );
    }
    let Ok(address) = hello.address.parse::<SocketAddr>() else {
        return refuse("address", "expected IP:PORT, such as 10.1.2.3:5310");
    };
    match unusable(address, remote) {
        Some(what) => {
            let expected = format!(
                "expected an address that other nodes reach, not {what}; give the agent \
                 its pod's (--advertise, POD_IP)"
            );
            refuse("address", &expected)
        }
        None => Ok(()),
    }
}

/// Returns the reason why other agents must not send echoes to an address, or `None` if they may.
/// A loopback address is accepted only from a loopback address, for tests.
fn unusable(address: SocketAddr, remote: Option<IpAddr>) -> Option<&'static str> {
    let loopback = remote.is_some_and(|r| r.to_canonical().is_loopback());
    let (link_local, broadcast) = match address.ip().to_canonical() {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.is_broadcast()),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), false),
    };
    match address.ip().to_canonical() {
        _ if address.port() == 0 => Some("port 0"),
        ip if ip.is_unspecified() => Some("the unspecified one"),
        ip if ip.is_multicast() => Some("multicast"),
        ip if ip.is_loopback() && !loopback => Some("loopback"),
        _ if link_local => Some("link-local"),
        _ if broadcast => Some("broadcast"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_must_be_a_nodes() {
        let local: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        let remote: IpAddr = "10.0.0.9".parse().unwrap();
        for (address, from, refused) in [
            ("10.1.2.3:5310", Some(remote), None),
            ("[fd00::1]:5310", None, None),
            ("[::ffff:10.1.2.3]:5310", Some(remote), None),
            ("10.1.2.3:0", Some(remote), Some("port 0")),
            ("0.0.0.0:5310", Some(local), Some("the unspecified one")),
            ("[::]:5310", Some(remote), Some("the unspecified one")),
            ("224.0.0.1:5310", Some(local), Some("multicast")),
            ("[ff02::1]:5310", Some(remote), Some("multicast")),
            ("169.254.169.254:80", Some(local), Some("link-local")),
            ("[::ffff:169.254.1.1]:80", Some(remote), Some("link-local")),
            ("[fe80::1]:5310", Some(remote), Some("link-local")),
            ("255.255.255.255:9", Some(remote), Some("broadcast")),
            ("127.0.0.1:5310", Some(remote), Some("loopback")),
            ("127.0.0.1:5310", None, Some("loopback")),
            ("[::ffff:127.9.9.9]:5310", Some(remote), Some("loopback")),
            ("[::1]:5310", Some(remote), Some("loopback")),
            ("127.0.0.1:5310", Some(local), None),
            ("[::1]:5310", Some(local), None),
        ] {
            let hello = Hello {
                node: "a".into(),
                boot_id: "boot".into(),
                address: address.into(),
                ..Hello::default()
            };
            let result = check(&hello, from).map_err(|status| status.message().to_owned());
            let expected = match refused {
                Some(what) => Err(format!(
                    "Hello of node \"a\", address: expected an address that other nodes reach, \
                     not {what}; give the agent its pod's (--advertise, POD_IP)"
                )),
                None => Ok(()),
            };
            assert_eq!(result, expected, "{address} from {from:?}");
        }
    }

    #[test]
    fn node_name_must_be_valid() {
        let hello = Hello {
            node: "a\nb".into(),
            boot_id: "boot".into(),
            address: "10.1.2.3:5310".into(),
            ..Hello::default()
        };
        let refused = check(&hello, None).unwrap_err();
        assert!(refused.message().contains(", node: expected"), "{refused}");
    }
}
