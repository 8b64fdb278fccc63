//! Addresses and networks, as Go's netip reads them; no zones, and no IPv4 in
//! IPv6.

use std::fmt;
use std::net::IpAddr;

use super::super::declaration::{Row, Scope};
use super::super::error::RunError;
use super::super::value::Value;

pub(super) const ROWS: &[Row] = &[
    (&["ip(string): IP"], |scope, arguments| match arguments {
        [Value::String(text)] => address(read(scope, text)?)
            .map(Value::Ip)
            .map_err(RunError::failed),
        _ => Err(RunError::no_overload()),
    }),
    (
        &["isIP(string): bool"],
        |scope, arguments| match arguments {
            [Value::String(text)] => Ok(Value::Bool(address(read(scope, text)?).is_ok())),
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &["'ip.isCanonical'(string): bool"],
        |scope, arguments| match arguments {
            [Value::String(text)] => {
                let address = address(read(scope, text)?).map_err(RunError::failed)?;
                Ok(Value::Bool(address.to_string() == **text))
            }
            _ => Err(RunError::no_overload()),
        },
    ),
    (&["IP.family(): int"], |_, arguments| match arguments {
        [Value::Ip(address)] => Ok(Value::Int(if address.is_ipv4() { 4 } else { 6 })),
        _ => Err(RunError::no_overload()),
    }),
    (&["IP.isUnspecified(): bool"], |_, arguments| {
        test(arguments, IpAddr::is_unspecified)
    }),
    (&["IP.isLoopback(): bool"], |_, arguments| {
        test(arguments, IpAddr::is_loopback)
    }),
    (&["IP.isLinkLocalMulticast(): bool"], |_, arguments| {
        test(arguments, |address| match address {
            IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
            IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
        })
    }),
    (&["IP.isLinkLocalUnicast(): bool"], |_, arguments| {
        test(arguments, link_local)
    }),
    (&["IP.isGlobalUnicast(): bool"], |_, arguments| {
        test(arguments, |address| {
            let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
            !broadcast
                && !address.is_unspecified()
                && !address.is_loopback()
                && !address.is_multicast()
                && !link_local(address)
        })
    }),
    (
        &["cidr(string): CIDR"],
        |scope, arguments| match arguments {
            [Value::String(text)] => network(read(scope, text)?)
                .map(Value::Cidr)
                .map_err(RunError::failed),
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &["isCIDR(string): bool"],
        |scope, arguments| match arguments {
            [Value::String(text)] => Ok(Value::Bool(network(read(scope, text)?).is_ok())),
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &["CIDR.containsIP(string): bool", "CIDR.containsIP(IP): bool"],
        |scope, arguments| match arguments {
            [Value::Cidr(network), Value::Ip(inner)] => Ok(Value::Bool(network.contains(*inner))),
            [Value::Cidr(network), Value::String(text)] => {
                let inner = address(read(scope, text)?).map_err(RunError::failed)?;
                Ok(Value::Bool(network.contains(inner)))
            }
            _ => Err(RunError::no_overload()),
        },
    ),
    (
        &[
            "CIDR.containsCIDR(string): bool",
            "CIDR.containsCIDR(CIDR): bool",
        ],
        contains_network,
    ),
    (&["CIDR.ip(): IP"], |_, arguments| match arguments {
        [Value::Cidr(network)] => Ok(Value::Ip(network.address)),
        _ => Err(RunError::no_overload()),
    }),
    (
        &["CIDR.prefixLength(): int"],
        |_, arguments| match arguments {
            [Value::Cidr(network)] => Ok(Value::Int(i64::from(network.bits))),
            _ => Err(RunError::no_overload()),
        },
    ),
    (&["CIDR.masked(): CIDR"], |_, arguments| match arguments {
        [Value::Cidr(network)] => Ok(Value::Cidr(Cidr {
            address: network.masked(network.address),
            bits: network.bits,
        })),
        _ => Err(RunError::no_overload()),
    }),
];

/// A network: an address, which need not be its first, and the prefix's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Cidr {
    /// The address with everything after the prefix zero.
    fn masked(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4((u32::from(address) & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.bits))
                    .unwrap_or(0);
                IpAddr::V6((u128::from(address) & mask).into())
            }
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && self.masked(address) == self.masked(self.address)
    }
}

fn contains_network(scope: &mut Scope<'_>, arguments: &[Value]) -> Result<Value, RunError> {
    let (outer, inner) = match arguments {
        [Value::Cidr(outer), Value::Cidr(inner)] => (outer, *inner),
        [Value::Cidr(outer), Value::String(text)] => (
            outer,
            network(read(scope, text)?).map_err(RunError::failed)?,
        ),
        _ => return Err(RunError::no_overload()),
    };
    Ok(Value::Bool(
        outer.bits <= inner.bits && outer.contains(inner.address),
    ))
}

fn test(arguments: &[Value], holds: fn(&IpAddr) -> bool) -> Result<Value, RunError> {
    match arguments {
        [Value::Ip(address)] => Ok(Value::Bool(holds(address))),
        _ => Err(RunError::no_overload()),
    }
}

fn link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// The text, its reading charged.
fn read<'a>(scope: &mut Scope<'_>, text: &'a str) -> Result<&'a str, RunError> {
    scope.budget.charge_read(text.len())?;
    Ok(text)
}

fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}

fn address(text: &str) -> Result<IpAddr, String> {
    match text.parse() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => Err(format!(
            "IPv4-mapped IPv6 address {:?} is not allowed",
            shown(text)
        )),
        Ok(address) => Ok(address),
        Err(_) => Err(format!(
            "IP Address {:?} parse error during conversion from string",
            shown(text)
        )),
    }
}

fn network(text: &str) -> Result<Cidr, String> {
    let wrong = || {
        format!(
            "network address parse error during conversion from string: {:?}",
            shown(text)
        )
    };
    let (address, bits) = text.rsplit_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    if matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some()) {
        return Err(format!(
            "IPv4-mapped IPv6 address {:?} is not allowed",
            shown(text)
        ));
    }
    let plain = bits.bytes().all(|byte| byte.is_ascii_digit())
        && (bits.len() == 1 || !bits.starts_with('0'));
    let bits: u8 = bits.parse().ok().filter(|_| plain).ok_or_else(wrong)?;
    if bits > if address.is_ipv4() { 32 } else { 128 } {
        return Err(wrong());
    }
    Ok(Cidr { address, bits })
}
