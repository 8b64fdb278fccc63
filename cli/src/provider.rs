//! Implements `tautline provider`, which runs one of the built-in providers: gpu-slice, latency or
//! scripted.

mod latency;

use std::net::SocketAddr;

use anyhow::Result;
use clap::Subcommand;
use tautline_gpu_placement::policy::PolicyName as Policy;
use tautline_sdk::Config;
use tautline_traces::Traces;

use crate::{
    cluster::ClusterArgs, extender::ServerTlsArgs, provider_args::OwnArgs,
    replica_args::ReplicaArgs, scope::object, trace_args::TraceArgs,
};

/// The maximum number of connections: of up to 5,000 agents, and of callers.
const MAX_CONNECTIONS: usize = 8192;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// GPU capacity: whole cards, shares, MIG instances (rule gpu-slice)
    GpuSlice(Box<GpuSliceArgs>),
    /// Network latency, measured by agents or from tables (rule latency)
    Latency(Box<latency::LatencyArgs>),
    /// Costs and compliances from CostProvider and RuleProvider resources (any rule)
    Scripted(Box<ScriptedArgs>),
}

#[derive(clap::Args)]
pub(crate) struct ScriptedArgs {
    #[command(flatten)]
    common: Args,
    #[command(flatten)]
    own: OwnArgs,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Where callers connect
    #[arg(long, default_value = "[::]:5309")]
    listen: SocketAddr,
    /// Address of /livez, /readyz and /metrics
    #[arg(long, default_value = "[::]:9090")]
    admin: SocketAddr,
    #[command(flatten)]
    tls: ServerTlsArgs,
    #[command(flatten)]
    traces: TraceArgs,
}

#[derive(clap::Args)]
#[command(
    after_help = "Policies:\n  tautline  Tautline's own\n  fgd       fragmentation gradient descent, as published\n  best-fit  the node with the least CPU and GPU left\n  packing   cards in use first, then nodes in use\n  spread    the node with most GPU left\n\nTwo replicas:\n  tautline provider gpu-slice --lease tautline-system/tautline-gpu-slice --advertise $POD_IP:5309\n\nAgents (tautline agent gpu) report what containers use of their cards. They prove which node they\nare on by a certificate of --tls-client-ca that names it, or by a token of --agent-tokens:\n  tautline provider gpu-slice --agent-tokens tautline-system/tautline-gpu-agent"
)]
pub(crate) struct GpuSliceArgs {
    #[command(flatten)]
    common: Args,
    /// How nodes and cards are chosen
    #[arg(long, default_value_t, value_name = "NAME")]
    policy: Policy,
    /// Write a pod's cards to this annotation too, as indexes (0-1), for a runtime
    /// that reads it, such as alibabacloud.com/gpu-index; the extender needs the key in
    /// --allocator-annotations
    #[arg(long, value_name = "ANNOTATION")]
    also_record: Option<String>,
    #[command(flatten)]
    agents: AgentArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

/// The proofs of agents.
#[derive(clap::Args)]
struct AgentArgs {
    /// Accept agents with a token of this ServiceAccount that is bound to their node
    #[arg(long, value_name = "NS/NAME", value_parser = object)]
    agent_tokens: Option<(String, String)>,
    /// Accept all agents without proof: only if no other clients can connect
    #[arg(long)]
    trust_agents: bool,
}

impl Args {
    fn server(&self, traces: &Traces) -> Config {
        Config {
            listen: self.listen,
            admin: Some(self.admin),
            tls: self.tls.clone().files(),
            traces: traces.clone(),
            ..Config::default()
        }
    }
}

pub(crate) async fn run(command: Command) -> Result<()> {
    match command {
        Command::GpuSlice(args) => {
            let traces = args.common.traces.start("tautline-gpu-slice")?;
            let (listen, tls) = (args.common.listen, args.common.tls.is_set());
            let config = tautline_gpu_slice::ProcessConfig {
                server: Config {
                    connections: MAX_CONNECTIONS,
                    ..args.common.server(&traces)
                },
                provider: tautline_gpu_slice::Config {
                    policy: args.policy,
                    index_annotation: args.also_record,
                    ..tautline_gpu_slice::Config::default()
                },
                replicas: args.replicas.config(listen, tls)?,
                agent_tokens: args.agents.agent_tokens,
                agent_certificates: args.common.tls.asks_clients(),
                trust_agents: args.agents.trust_agents,
            };
            let cluster = args.common.cluster.with_retries().await?;
            let ended = tautline_gpu_slice::run(cluster, config).await;
            traces.end().await;
            ended
        }
        Command::Latency(args) => latency::run(args).await,
        Command::Scripted(args) => {
            let traces = args.common.traces.start("tautline-scripted")?;
            let config = tautline_scripted::ProcessConfig {
                server: args.common.server(&traces),
                trusted: args.own.trusted(),
            };
            let cluster = args.common.cluster.with_retries().await?;
            let ended = tautline_scripted::run(cluster, config).await;
            traces.end().await;
            ended
        }
    }
}
