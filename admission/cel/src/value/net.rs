//! Parses IP addresses and networks as Go's netip does. Zones and IPv4-mapped IPv6 addresses are
//! refused.

use std::fmt;
use std::net::IpAddr;

use crate::error::Invalid;

/// A network: an address, which need not be the first of the network, and the length of the prefix
/// in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) bits: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Cidr {
    /// Returns the address with all bits after the network's prefix set to zero.
    pub(crate) fn masked(&self, address: IpAddr) -> IpAddr {
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

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && self.masked(address) == self.masked(self.address)
    }
}

pub(super) fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}

pub(crate) fn address(text: &str) -> Result<IpAddr, Invalid> {
    match text.parse() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => Err(Invalid(format!(
            "IPv4-mapped IPv6 address {:?} is not allowed",
            shown(text)
        ))),
        Ok(address) => Ok(address),
        Err(_) => Err(Invalid(format!(
            "IP Address {:?} parse error during conversion from string",
            shown(text)
        ))),
    }
}

pub(crate) fn network(text: &str) -> Result<Cidr, Invalid> {
    let wrong = || {
        Invalid(format!(
            "network address parse error during conversion from string: {:?}",
            shown(text)
        ))
    };
    let (address, bits) = text.rsplit_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    if matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some()) {
        return Err(Invalid(format!(
            "IPv4-mapped IPv6 address {:?} is not allowed",
            shown(text)
        )));
    }
    let plain = bits.bytes().all(|byte| byte.is_ascii_digit())
        && (bits.len() == 1 || !bits.starts_with('0'));
    let bits: u8 = bits.parse().ok().filter(|_| plain).ok_or_else(wrong)?;
    if bits > if address.is_ipv4() { 32 } else { 128 } {
        return Err(wrong());
    }
    Ok(Cidr { address, bits })
}
