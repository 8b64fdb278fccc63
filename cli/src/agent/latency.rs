//! Implements `tautline agent latency`, which measures the network from a node for the latency
//! provider.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use tautline_latency_agent::{App, Config, boot_id};

use super::ReportingArgs;
use crate::{provider_args::client_files, run_until_shutdown};

#[derive(clap::Args)]
#[command(
    after_help = "The provider says which nodes to measure; nodes measure each other by UDP, so its port must\nbe open between them.\n\nExample, on each node:\n  NODE_NAME=edge-1 POD_IP=10.1.2.3 tautline agent latency \\\n    --provider https://tautline-latency.tautline-system:5309 --provider-ca ca.crt \\\n    --token-file /var/run/secrets/tautline/token\n\nExample, of two agents on one machine:\n  tautline agent latency --node a --provider http://127.0.0.1:5309 --listen 127.0.0.1:5311 --admin 127.0.0.1:0"
)]
pub(crate) struct LatencyArgs {
    #[command(flatten)]
    reporting: ReportingArgs,
    /// Where echoes are answered, UDP and TCP
    #[arg(long, default_value = "[::]:5310")]
    listen: SocketAddr,
    /// Where other nodes reach that [default: $POD_IP and the port of --listen]
    #[arg(long, value_name = "IP:PORT")]
    advertise: Option<SocketAddr>,
    /// This pod's address
    #[arg(long, env = "POD_IP", hide = true)]
    pod_ip: Option<IpAddr>,
    /// Speed of the way out [default: unknown]
    #[arg(long, value_name = "BITS")]
    nic_bits_per_second: Option<u64>,
    /// Send and take throughput tests, one a minute at the most
    #[arg(long)]
    throughput_tests: bool,
}

pub(super) async fn run(args: LatencyArgs) -> Result<()> {
    let app = App::build(config(args)?).await?;
    tracing::info!(address = %app.address()?, admin = %app.admin_address()?, "latency agent listening");
    run_until_shutdown("latency agent", app.readiness(), |tasks| app.spawn(tasks)).await
}

fn config(args: LatencyArgs) -> Result<Config> {
    let by_pod = args
        .pod_ip
        .filter(|_| args.listen.port() != 0)
        .map(|ip| SocketAddr::new(ip, args.listen.port()));
    Ok(Config {
        token: args.reporting.token(),
        node: args.reporting.node,
        boot_id: boot_id()?,
        advertise: args.advertise.or(by_pod),
        listen: args.listen,
        admin: args.reporting.admin,
        nic_bits_per_second: args.nic_bits_per_second.unwrap_or_default(),
        providers: args.reporting.providers,
        tls: client_files(args.reporting.tls),
        throughput_tests: args.throughput_tests,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: LatencyArgs,
    }

    fn of(args: &[&str]) -> Config {
        let base = ["agent", "--node", "n", "--provider", "http://p:1"];
        let line = base.iter().chain(args);
        config(Line::try_parse_from(line).unwrap().args).unwrap()
    }

    #[test]
    fn the_address_is_the_pods_unless_it_is_given() {
        let given = of(&["--advertise", "10.0.0.1:7", "--pod-ip", "10.0.0.2"]);
        assert_eq!(given.advertise.unwrap().to_string(), "10.0.0.1:7");
        let by_pod = of(&["--pod-ip", "fd00::2", "--listen", "[::]:6000"]);
        assert_eq!(by_pod.advertise.unwrap().to_string(), "[fd00::2]:6000");
        assert_eq!(by_pod.boot_id, boot_id().unwrap());
        assert_eq!(of(&["--listen", "127.0.0.1:0"]).advertise, None);
    }

    #[test]
    fn invalid_provider_error_names_the_form() {
        let line = ["agent", "--node", "n", "--provider", "latency:5309"];
        let error = Line::try_parse_from(line).err().unwrap().to_string();
        assert!(error.contains("write it as https://"), "{error}");
    }
}
