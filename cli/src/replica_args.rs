//! Defines the command-line flags for several replicas of the gpu-slice provider, which share a
//! Lease.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tautline_gpu_slice::replicas::{Config, PeerTls};

use crate::{
    duration_arg::parse_duration,
    identity::identity,
    provider_args::{ClientTlsArgs, client_files},
    scope::object,
};

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ReplicaArgs {
    /// Lease of the replicas: its holder reserves. Without it run a single replica, also
    /// during an update
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = object)]
    lease: Option<(String, String)>,
    /// Address of this replica for the others [default: $POD_IP and the port of --listen]
    #[arg(long, value_name = "HOST:PORT", requires = "lease")]
    advertise: Option<String>,
    #[arg(long, env = "POD_IP", hide = true)]
    pod_ip: Option<IpAddr>,
    /// Time without renewal after which the holder is replaced [default: 12s]
    #[arg(long, value_parser = parse_duration, requires = "lease")]
    lease_duration: Option<Duration>,
    /// Name in the certificates of the replicas [default: the host of --advertise]
    #[arg(long, value_name = "NAME", requires = "lease")]
    tls_name: Option<String>,
    #[command(flatten)]
    tls: ClientTlsArgs,
}

impl ReplicaArgs {
    /// Makes the configuration; `None` for a single replica. `listen` is the address of its port;
    /// `tls` is true if it serves with TLS.
    pub(crate) fn config(self, listen: SocketAddr, tls: bool) -> Result<Option<Config>> {
        let Some((namespace, name)) = &self.lease else {
            return Ok(None);
        };
        let advertise = match (self.advertise, self.pod_ip) {
            (Some(address), _) => address,
            (None, Some(ip)) => SocketAddr::new(ip, listen.port()).to_string(),
            (None, None) => bail!(
                "--lease needs --advertise HOST:PORT, or the pod's address in the environment variable POD_IP"
            ),
        };
        let Some((host, _)) = advertise.rsplit_once(':').filter(|(host, port)| {
            !host.is_empty() && !host.contains('@') && port.parse::<u16>().is_ok_and(|p| p != 0)
        }) else {
            bail!("--advertise {advertise:?}: write HOST:PORT, with a port above 0");
        };
        let mut config = Config::new(namespace, name, &identity(), &advertise);
        if let Some(duration) = self.lease_duration {
            config = config.with_duration(duration);
        }
        if tls {
            let files = client_files(self.tls);
            files.ca.as_ref().context(
                "--lease with --tls-cert needs --provider-ca: replicas call each other over TLS",
            )?;
            let host = host.trim_matches(['[', ']']).to_owned();
            let name = self.tls_name.unwrap_or(host);
            config.tls = Some(PeerTls { files, name });
        }
        Ok(Some(config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(advertise: Option<&str>) -> ReplicaArgs {
        ReplicaArgs {
            lease: Some(("ns".into(), "name".into())),
            advertise: advertise.map(Into::into),
            ..ReplicaArgs::default()
        }
    }

    #[test]
    fn no_lease_means_a_single_replica() {
        let config = ReplicaArgs::default().config(([0, 0, 0, 0], 5309).into(), false);
        assert!(config.unwrap().is_none());
    }

    #[test]
    fn advertised_address_defaults_to_the_pod_ip() {
        for (ip, address) in [("10.0.0.7", "10.0.0.7:5309"), ("fd00::7", "[fd00::7]:5309")] {
            let args = ReplicaArgs {
                pod_ip: Some(ip.parse().unwrap()),
                ..args(None)
            };
            let config = args.config(([0, 0, 0, 0], 5309).into(), false).unwrap();
            assert!(format!("{config:?}").contains(&format!("@{address}\"")));
        }
    }

    #[test]
    fn bad_flags_name_the_fix() {
        let listen = ([0, 0, 0, 0], 5309).into();
        let cases = [
            (args(None), false, "POD_IP"),
            (args(Some("a")), false, "write HOST:PORT"),
            (args(Some("a:0")), false, "write HOST:PORT"),
            (args(Some("a:1")), true, "--provider-ca"),
        ];
        for (args, tls, expected) in cases {
            let error = args.config(listen, tls).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
