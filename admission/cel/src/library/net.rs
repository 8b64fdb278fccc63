use std::net::IpAddr;

use super::declaration::{CallContext, Function};
use crate::error::EvaluationError;
use crate::value::net::{address, network};
use crate::value::{Cidr, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    (&["ip(string): IP"], |context, arguments| {
        bind!([Value::String(text)] = arguments);
        Ok(Value::Ip(address(read(context, text)?)?))
    }),
    (&["isIP(string): bool"], |context, arguments| {
        bind!([Value::String(text)] = arguments);
        Ok(Value::Bool(address(read(context, text)?).is_ok()))
    }),
    (&["'ip.isCanonical'(string): bool"], |context, arguments| {
        bind!([Value::String(text)] = arguments);
        let address = address(read(context, text)?)?;
        Ok(Value::Bool(address.to_string() == **text))
    }),
    (&["IP.family(): int"], |_, arguments| {
        bind!([Value::Ip(address)] = arguments);
        Ok(Value::Int(if address.is_ipv4() { 4 } else { 6 }))
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
    (&["cidr(string): CIDR"], |context, arguments| {
        bind!([Value::String(text)] = arguments);
        Ok(Value::Cidr(network(read(context, text)?)?))
    }),
    (&["isCIDR(string): bool"], |context, arguments| {
        bind!([Value::String(text)] = arguments);
        Ok(Value::Bool(network(read(context, text)?).is_ok()))
    }),
    (
        &["CIDR.containsIP(string): bool", "CIDR.containsIP(IP): bool"],
        |context, arguments| match arguments {
            [Value::Cidr(network), Value::Ip(inner)] => Ok(Value::Bool(network.contains(*inner))),
            [Value::Cidr(network), Value::String(text)] => {
                let inner = address(read(context, text)?)?;
                Ok(Value::Bool(network.contains(inner)))
            }
            _ => Err(EvaluationError::no_overload()),
        },
    ),
    (
        &[
            "CIDR.containsCIDR(string): bool",
            "CIDR.containsCIDR(CIDR): bool",
        ],
        contains_network,
    ),
    (&["CIDR.ip(): IP"], |_, arguments| {
        bind!([Value::Cidr(network)] = arguments);
        Ok(Value::Ip(network.address))
    }),
    (&["CIDR.prefixLength(): int"], |_, arguments| {
        bind!([Value::Cidr(network)] = arguments);
        Ok(Value::Int(i64::from(network.bits)))
    }),
    (&["CIDR.masked(): CIDR"], |_, arguments| {
        bind!([Value::Cidr(network)] = arguments);
        Ok(Value::Cidr(Cidr {
            address: network.masked(network.address),
            bits: network.bits,
        }))
    }),
];

fn contains_network(
    context: &mut CallContext<'_>,
    arguments: &[Value],
) -> Result<Value, EvaluationError> {
    let (outer, inner) = match arguments {
        [Value::Cidr(outer), Value::Cidr(inner)] => (outer, *inner),
        [Value::Cidr(outer), Value::String(text)] => (outer, network(read(context, text)?)?),
        _ => return Err(EvaluationError::no_overload()),
    };
    Ok(Value::Bool(
        outer.bits <= inner.bits && outer.contains(inner.address),
    ))
}

fn test(arguments: &[Value], holds: fn(&IpAddr) -> bool) -> Result<Value, EvaluationError> {
    bind!([Value::Ip(address)] = arguments);
    Ok(Value::Bool(holds(address)))
}

fn link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Returns the text after charging for reading it.
fn read<'a>(context: &mut CallContext<'_>, text: &'a str) -> Result<&'a str, EvaluationError> {
    context.budget.charge_read(text.len())?;
    Ok(text)
}
