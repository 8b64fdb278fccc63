//! Implements the CEL functions that parse, classify and compare IP addresses and CIDR networks.

use std::net::IpAddr;

use super::declaration::{CallContext, Module, Overload};
use crate::error::EvaluationError;
use crate::value::net::{address, network};
use crate::value::{Cidr, Value};

pub(super) const MODULE: Module = (
    "ip(string): IP; isIP(string): bool; 'ip.isCanonical'(string): bool
    IP.family(): int
    IP.isUnspecified|isLoopback|isLinkLocalMulticast|isLinkLocalUnicast|isGlobalUnicast(): bool
    cidr(string): CIDR; isCIDR(string): bool
    CIDR.containsIP(string): bool; CIDR.containsIP(IP): bool
    CIDR.containsCIDR(string): bool; CIDR.containsCIDR(CIDR): bool
    CIDR.ip(): IP; CIDR.prefixLength(): int; CIDR.masked(): CIDR",
    call,
);

fn call(
    function: &Overload,
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Value, EvaluationError> {
    if let Some(Value::String(text)) = arguments.last() {
        context.budget.charge_read(text.len())?;
    }
    Ok(match (function.name, arguments) {
        ("ip", [Value::String(text)]) => Value::Ip(address(text)?),
        ("isIP", [Value::String(text)]) => Value::Bool(address(text).is_ok()),
        ("ip.isCanonical", [Value::String(text)]) => {
            Value::Bool(address(text)?.to_string() == **text)
        }
        ("cidr", [Value::String(text)]) => Value::Cidr(network(text)?),
        ("isCIDR", [Value::String(text)]) => Value::Bool(network(text).is_ok()),
        ("family", [Value::Ip(address)]) => Value::Int(if address.is_ipv4() { 4 } else { 6 }),
        ("containsIP", [Value::Cidr(outer), inner]) => Value::Bool(outer.contains(match inner {
            Value::Ip(inner) => *inner,
            Value::String(text) => address(text)?,
            _ => return Err(EvaluationError::no_overload()),
        })),
        ("containsCIDR", [Value::Cidr(outer), inner]) => {
            let inner = match inner {
                Value::Cidr(inner) => *inner,
                Value::String(text) => network(text)?,
                _ => return Err(EvaluationError::no_overload()),
            };
            Value::Bool(outer.bits <= inner.bits && outer.contains(inner.address))
        }
        ("ip", [Value::Cidr(network)]) => Value::Ip(network.address),
        ("prefixLength", [Value::Cidr(network)]) => Value::Int(i64::from(network.bits)),
        ("masked", [Value::Cidr(network)]) => Value::Cidr(Cidr {
            address: network.masked(network.address),
            bits: network.bits,
        }),
        (name, [Value::Ip(address)]) => Value::Bool(match name {
            "isUnspecified" => address.is_unspecified(),
            "isLoopback" => address.is_loopback(),
            "isLinkLocalMulticast" => match address {
                IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
                IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
            },
            "isLinkLocalUnicast" => link_local(address),
            "isGlobalUnicast" => {
                let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
                !broadcast
                    && !address.is_unspecified()
                    && !address.is_loopback()
                    && !address.is_multicast()
                    && !link_local(address)
            }
            _ => return Err(EvaluationError::no_overload()),
        }),
        _ => return Err(EvaluationError::no_overload()),
    })
}

fn link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
