//! Implements `tautline provider latency`, which runs the provider of rules about network latency
//! and bandwidth.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use anyhow::Result;
use ipnet::IpNet;
use tautline_latency::{AllowedAddresses, Config, DEFAULT_TARGETS, EchoKeySource};

use super::MAX_CONNECTIONS;
use crate::{duration_arg::parse_duration, provider_args::OwnArgs, scope::object};

#[derive(clap::Args)]
#[command(
    after_help = "A table is CSV, FROM,TO,RTT a line (zone-a,zone-b,12ms), of nodes or zones.\nWithout --table it comes from ConfigMaps labelled constraint.ciena.com/latency-table: enabled\n(bandwidth-table: of the rule bandwidth, FROM,TO,BITS_PER_SECOND).\n\nAgents (tautline agent latency) prove which node they are on by a certificate of\n--tls-client-ca that names it, or by a token of --agent-tokens:\n  tautline provider latency --agent-tokens tautline-system/tautline-latency-agent"
)]
pub(crate) struct LatencyArgs {
    #[command(flatten)]
    common: super::Args,
    #[command(flatten)]
    own: OwnArgs,
    /// Read the table from this file, for pods of all namespaces
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    #[command(flatten)]
    agents: super::AgentArgs,
    /// Derive the echo keys from this Secret, which replicas share; the first replica
    /// creates it [default: a random secret of this process]
    #[arg(long, value_name = "NS/NAME", value_parser = object)]
    echo_key_secret: Option<(String, String)>,
    /// Nodes that each node measures, besides those that active rules name
    #[arg(long, value_name = "N", default_value_t = DEFAULT_TARGETS, value_parser = targets)]
    targets: usize,
    /// Become ready once four fifths of the nodes have an agent, or after this time
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "45s")]
    agents_within: Duration,
    /// Let agents measure bandwidth by sending data, rarely
    #[arg(long)]
    throughput_tests: bool,
    /// Let agents connect to addresses outside the cluster in these ranges, when rules name
    /// them; a comma between two
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    external_cidrs: Vec<IpNet>,
}

fn targets(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 4..=32) => Ok(n),
        _ => Err("write a number from 4 to 32".to_owned()),
    }
}

pub(super) async fn run(args: Box<LatencyArgs>) -> Result<()> {
    let args = *args;
    let common = args.common;
    let traces = common.traces.start("tautline-latency")?;
    let config = Config {
        agent_certificates: common.tls.asks_clients(),
        server: tautline_sdk::Config {
            connections: MAX_CONNECTIONS,
            ..common.server(&traces)
        },
        trusted: args.own.trusted(),
        table: args.table,
        agent_tokens: args.agents.agent_tokens,
        trust_agents: args.agents.trust_agents,
        echo_key: match args.echo_key_secret {
            Some((namespace, name)) => EchoKeySource::Secret(namespace, name),
            None => EchoKeySource::Random,
        },
        targets: args.targets,
        agents_within: args.agents_within,
        allow_transfers: args.throughput_tests,
        outside: AllowedAddresses::new(args.external_cidrs, api_server()),
    };
    let cluster = common.cluster.with_retries().await?;
    let ended = tautline_latency::run(&cluster, config).await;
    traces.end().await;
    ended
}

/// Returns the address of the API server's Service, which pods find in their environment.
fn api_server() -> Option<IpAddr> {
    std::env::var("KUBERNETES_SERVICE_HOST").ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        assert_eq!(targets("32"), Ok(32));
        assert!(targets("0").unwrap_err().contains("from 4 to 32"));
    }
}
