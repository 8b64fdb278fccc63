use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result};
use tokio::net::TcpListener;

const PORT: u16 = 8484;
/// The number of ports that are tried, from [`PORT`] on, before any other port.
const MAX_PORT_TRIES: u16 = 50;

#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct ListenArgs {
    /// Address of the console, on 127.0.0.1 or [::1] [default: 127.0.0.1, port 8484 or the next
    /// free one]
    #[arg(long, value_name = "ADDRESS", value_parser = loopback)]
    listen: Option<SocketAddr>,
}

/// Parses an address of loopback. Other addresses are refused, since the console refuses requests
/// that name another host.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let allowed = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ];
    match text.parse::<SocketAddr>() {
        Ok(address) if allowed.contains(&address.ip()) => Ok(address),
        Ok(_) => Err(
            "the console has no login: it listens on 127.0.0.1 or [::1] only; to see it from \
             another machine, forward the port with ssh -L"
                .to_owned(),
        ),
        Err(_) => Err("write 127.0.0.1:PORT; port 0 is any free one".to_owned()),
    }
}

pub(crate) async fn bind(args: &ListenArgs) -> Result<TcpListener> {
    if let Some(address) = args.listen {
        let bound = TcpListener::bind(address).await;
        return bound.with_context(|| format!("--listen {address}"));
    }
    for port in (PORT..PORT + MAX_PORT_TRIES).chain([0]) {
        if let Ok(bound) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            return Ok(bound);
        }
    }
    anyhow::bail!("no free port on 127.0.0.1; name one with --listen")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_allowed() {
        for good in ["127.0.0.1:0", "127.0.0.1:8484", "[::1]:9000"] {
            assert!(loopback(good).is_ok(), "{good}");
        }
        for bad in ["0.0.0.0:8484", "[::]:1", "10.0.0.1:80", "127.0.0.2:80"] {
            assert!(loopback(bad).unwrap_err().contains("ssh -L"), "{bad}");
        }
        for bad in ["8484", "localhost:8484", ""] {
            assert!(
                loopback(bad).unwrap_err().contains("127.0.0.1:PORT"),
                "{bad}"
            );
        }
    }

    #[tokio::test]
    async fn next_port_is_taken_when_the_default_is_in_use() {
        let first = bind(&ListenArgs::default()).await.unwrap();
        let second = bind(&ListenArgs::default()).await.unwrap();
        let (first, second) = (first.local_addr().unwrap(), second.local_addr().unwrap());
        assert_ne!(first, second);
        assert!(second.ip().is_loopback());
    }
}
