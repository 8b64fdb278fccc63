//! The proxy of an API server: `proxy-url` of the kubeconfig, else the environment's, by the rules
//! of Go's `http.ProxyFromEnvironment`, as in kubectl.

use std::net::IpAddr;

use anyhow::{Result, bail};
use hyper::Uri;

/// Returns the proxy that the environment sets for this server, if any.
pub(super) fn from_environment(
    server: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>> {
    let first = |names: [&'static str; 2]| {
        names
            .into_iter()
            .filter_map(|n| Some((n, variable(n)?)))
            .map(|(name, value)| (name, value.trim().to_owned()))
            .find(|(_, value)| !value.is_empty())
    };
    let names = match server.scheme_str() {
        Some("http") => ["HTTP_PROXY", "http_proxy"],
        _ => ["HTTPS_PROXY", "https_proxy"],
    };
    let Some((name, value)) = first(names) else {
        return Ok(None);
    };
    let exceptions = first(["NO_PROXY", "no_proxy"]).map_or_else(String::new, |(_, v)| v);
    if is_direct(server, &exceptions) {
        return Ok(None);
    }
    let url = if value.contains("://") {
        value
    } else {
        format!("http://{value}")
    };
    parse(&url, name).map(Some)
}

/// Parses a proxy that `field` names.
pub(super) fn parse(url: &str, field: &str) -> Result<Uri> {
    // With either scheme the proxy resolves names.
    let url = url.replacen("socks5h://", "socks5://", 1);
    let fix = "write http://, https:// or socks5://HOST:PORT";
    let Ok(uri) = url.parse::<Uri>() else {
        bail!("{field}: is not a URL; {fix}");
    };
    match (uri.scheme_str(), uri.authority()) {
        (Some("socks5"), Some(authority)) if authority.as_str().contains('@') => bail!(
            "{field}: user and password of a socks5 proxy are not supported; name an http or \
             https proxy, or one that asks for none"
        ),
        (Some("http" | "https" | "socks5"), Some(_)) => Ok(uri),
        (Some(scheme), Some(_)) => bail!("{field}: there are no proxies of {scheme}; {fix}"),
        _ => bail!("{field}: is not a URL; {fix}"),
    }
}

/// Returns whether a server is reached without the proxy, because of `NO_PROXY` or because it is
/// this machine.
fn is_direct(server: &Uri, exceptions: &str) -> bool {
    let lower_case = server.host().unwrap_or_default().to_ascii_lowercase();
    let host = lower_case.trim_matches(['[', ']']);
    let default_port = match server.scheme_str() {
        Some("http") => 80,
        _ => 443,
    };
    let port = server.port_u16().unwrap_or(default_port);
    let address: Option<IpAddr> = host.parse().ok();
    host == "localhost"
        || address.is_some_and(|ip| ip.is_loopback())
        || exceptions
            .split(',')
            .any(|entry| matches(&entry.trim().to_ascii_lowercase(), host, address, port))
}

/// Returns whether an entry of `NO_PROXY` matches a server: `*`, `10.0.0.0/8`, `10.0.0.1`,
/// `example.com` with the hosts below it, `.example.com` for the hosts below it only. All but the
/// first two may have a port.
fn matches(entry: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Some((network, bits)) = entry.split_once('/') {
        return address.is_some_and(|ip| is_in(ip, network, bits) == Some(true));
    }
    let (name, own_port) = match entry.rsplit_once(':') {
        // An IPv6 address has several colons.
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, Some(port)),
        _ => (entry, None),
    };
    let name = name.trim_matches(['[', ']']);
    if name.is_empty() || own_port.is_some_and(|own| own != port.to_string()) {
        return false;
    }
    if let Ok(own) = name.parse::<IpAddr>() {
        return address == Some(own);
    }
    let below = name.strip_prefix('*').unwrap_or(name);
    match below.strip_prefix('.') {
        Some(_) => host.ends_with(below),
        None => host
            .strip_suffix(name)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
    }
}

fn is_in(ip: IpAddr, network: &str, bits: &str) -> Option<bool> {
    let bits: u32 = bits.parse().ok()?;
    let (differs, width) = match (ip, network.parse().ok()?) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            (u128::from(ip.to_bits() ^ network.to_bits()), 32_u32)
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => (ip.to_bits() ^ network.to_bits(), 128),
        _ => return None,
    };
    let host_bits = width.checked_sub(bits)?;
    Some(differs.checked_shr(host_bits).unwrap_or(0) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(server: &str, variables: &[(&str, &str)]) -> Option<String> {
        let of = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let proxy = from_environment(&server.parse().unwrap(), of).unwrap();
        proxy.map(|uri| uri.to_string())
    }

    #[test]
    fn environment_chooses_the_proxy_by_scheme() {
        let all = [
            ("HTTPS_PROXY", ""),
            ("https_proxy", "tls.example:3128"),
            ("HTTP_PROXY", "socks5h://plain.example:1080"),
        ];
        let of = |server| proxy(server, &all);
        assert_eq!(
            of("https://api.example:6443").unwrap(),
            "http://tls.example:3128/"
        );
        assert_eq!(
            of("http://api.example").unwrap(),
            "socks5://plain.example:1080/"
        );
        for direct in [
            "https://localhost:6443",
            "https://127.0.0.1:6443",
            "https://[::1]:6443",
        ] {
            assert_eq!(of(direct), None, "{direct}");
        }
        assert_eq!(proxy("https://api.example", &[]), None);
    }

    // Cases of golang.org/x/net/http/httpproxy.
    #[test]
    fn no_proxy_is_read_as_go_reads_it() {
        let exceptions = " , .barbaz.net,*.blah.com ,FOO.example, 192.168.1.1,81.82.83.84/16,[2001:db8::1]:8443,\
                          2001:db8:1::/48,Other.Org:6443,:80,";
        for (server, direct) in [
            ("https://host.barbaz.net", true),
            ("https://barbaz.net", false),
            ("https://x.blah.com:6443", true),
            ("https://foo.example", true),
            ("https://foo.EXAMPLE:6443", true),
            ("https://bar.foo.example", true),
            ("https://barfoo.example", false),
            ("https://192.168.1.1:6443", true),
            ("https://192.168.1.2:6443", false),
            ("https://81.82.1.1", true),
            ("https://81.83.1.1", false),
            ("https://[2001:db8::1]:8443", true),
            ("https://[2001:db8::1]:6443", false),
            ("https://[2001:db8:1:2::3]", true),
            ("https://other.org:6443", true),
            ("https://other.org", false),
        ] {
            let variables = [("HTTPS_PROXY", "p.example:1"), ("NO_PROXY", exceptions)];
            let proxy = proxy(server, &variables);
            assert_eq!(proxy.is_none(), direct, "{server}: {proxy:?}");
        }
        let all = [("HTTPS_PROXY", "p.example:1"), ("no_proxy", "a.example,*")];
        assert_eq!(proxy("https://10.0.0.1", &all), None);
    }

    #[test]
    fn proxies_of_other_kinds_are_refused() {
        for (url, part) in [
            ("ftp://p.example", "there are no proxies of ftp"),
            ("p.example:3128", "is not a URL"),
            ("socks5://user:word@p.example:1080", "user and password"),
        ] {
            let error = parse(url, "proxy-url").unwrap_err().to_string();
            assert!(
                error.starts_with("proxy-url: ") && error.contains(part),
                "{error}"
            );
            assert!(!error.contains("word@"), "{error}");
        }
    }
}
