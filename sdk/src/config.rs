//! The configuration of a server, in code or by environment variables.

use std::{
    net::{Ipv6Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::{Context, Result, bail};
use tautline_proto::RULE_PROVIDER_PORT;
use tautline_serve::{http::Limits, tls::ServerFiles};

/// The configuration of a [`Server`](crate::Server).
#[derive(Clone, Debug)]
pub struct Config {
    /// The address of gRPC; port 0 chooses a free one. The default is port 5309 of every address.
    pub listen: SocketAddr,
    /// The address of `/livez`, `/readyz` and `/metrics`; `None`, the default, does not serve them.
    pub admin: Option<SocketAddr>,
    /// The TLS files, which are reloaded within 2 s of a change; `None`, the default, serves
    /// without TLS.
    pub tls: Option<ServerFiles>,
    /// The maximum number of connections, 1,024 by default. Beyond it the address with the most
    /// connections loses its idlest one, but no connection with a call in progress.
    pub connections: usize,
    /// The destination of calls' spans. By default there is none, and [`serve`](crate::serve) reads
    /// OpenTelemetry's environment variables.
    #[cfg(feature = "traces")]
    pub traces: tautline_traces::Traces,
}

impl Default for Config {
    fn default() -> Self {
        let listen = SocketAddr::from((Ipv6Addr::UNSPECIFIED, RULE_PROVIDER_PORT));
        Self {
            listen,
            admin: None,
            tls: None,
            connections: 1024,
            #[cfg(feature = "traces")]
            traces: Default::default(),
        }
    }
}

impl Config {
    /// Reads `LISTEN`, `ADMIN`, `TLS_CERT`, `TLS_KEY` and `TLS_CLIENT_CA`; without them the
    /// defaults hold. `:5309` is the port of every address.
    ///
    /// # Errors
    /// A variable is malformed; the error names it, and what to write.
    pub fn from_env() -> Result<Self> {
        Self::from_variables(|name| std::env::var_os(name).map(PathBuf::from))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<PathBuf>) -> Result<Self> {
        let set = |name: &str| variable(name).filter(|value| !value.as_os_str().is_empty());
        let address = |name: &str| {
            let value = set(name).map(|value| value.to_string_lossy().into_owned());
            let parsed = value.as_deref().map(address).transpose();
            parsed.with_context(|| {
                let value = value.as_deref().unwrap_or_default();
                format!("{name}={value}: write IP:PORT, such as 127.0.0.1:5309, or :5309")
            })
        };
        let tls = match (set("TLS_CERT"), set("TLS_KEY"), set("TLS_CLIENT_CA")) {
            (Some(cert), Some(key), client_ca) => Some(ServerFiles {
                cert,
                key,
                client_ca,
                alpn: Vec::new(),
            }),
            (None, None, None) => None,
            (None, _, _) => bail!("TLS_CERT is not set: name the file of the server's certificate"),
            (_, None, _) => bail!("TLS_KEY is not set: name the file of the certificate's key"),
        };
        let default = Self::default();
        Ok(Self {
            listen: address("LISTEN")?.unwrap_or(default.listen),
            admin: address("ADMIN")?,
            tls,
            ..default
        })
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            connections: self.connections,
            // Many agents may reconnect at once.
            handshakes: (self.connections / 4).max(128),
            // HTTP/2 detects dead peers by pings.
            idle: None,
            ..Limits::default()
        }
    }
}

fn address(text: &str) -> Result<SocketAddr> {
    match text.strip_prefix(':') {
        Some(port) => Ok((Ipv6Addr::UNSPECIFIED, port.parse()?).into()),
        None => Ok(text.parse()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(variables: &[(&str, &str)]) -> Result<Config, String> {
        let value = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name)?;
            Some(PathBuf::from(found.1))
        };
        Config::from_variables(value).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn from_env_reads_addresses_and_files() {
        let all = [
            ("LISTEN", "127.0.0.1:0"),
            ("ADMIN", ":9090"),
            ("TLS_CERT", "tls.crt"),
            ("TLS_KEY", "tls.key"),
            ("TLS_CLIENT_CA", "ca.crt"),
        ];
        let read = config(&all).unwrap();
        assert_eq!(read.listen, ([127, 0, 0, 1], 0).into());
        assert_eq!(read.admin, Some("[::]:9090".parse().unwrap()));
        let tls = read.tls.unwrap();
        assert_eq!((tls.cert, tls.key), ("tls.crt".into(), "tls.key".into()));
        assert_eq!(tls.client_ca, Some("ca.crt".into()));

        let read = config(&[("LISTEN", ""), ("TLS_CERT", "")]).unwrap();
        assert_eq!(read.listen, Config::default().listen);
        assert!(read.admin.is_none() && read.tls.is_none());
    }

    #[test]
    fn from_env_names_the_variable_and_the_fix() {
        for (variables, part) in [
            (&[("LISTEN", "5309")][..], "LISTEN=5309: write IP:PORT"),
            (&[("LISTEN", "localhost:1")], "localhost:1: write IP:PORT"),
            (&[("ADMIN", ":x")], "ADMIN=:x: write IP:PORT"),
            (&[("TLS_CERT", "a")], "TLS_KEY is not set"),
            (&[("TLS_KEY", "a")], "TLS_CERT is not set"),
            (&[("TLS_CLIENT_CA", "a")], "TLS_CERT is not set"),
        ] {
            let error = config(variables).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
