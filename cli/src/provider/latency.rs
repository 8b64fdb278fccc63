//! `tautline provider latency`

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};
use tautline_latency::{
    AUDIENCE, Identity, Keys, Latency, Measuring, NODE_EXTRA, Network, Pods, RACK, Review,
    Reviewed, Settings, TARGETS, Tokens, report::Pages,
};

use crate::extender::parse_duration;

use super::{echo_key, prepare, serve, tables, watched};

/// Each agent has one, of up to 5,000, and callers have theirs.
const CONNECTIONS: usize = 8192;

#[derive(clap::Args)]
#[command(
    after_help = "A table is CSV, FROM,TO,RTT a line (zone-a,zone-b,12ms), of nodes or zones.\nWithout --table it comes from ConfigMaps labelled constraint.ciena.com/latency-table: enabled\n(bandwidth-table: of the rule bandwidth, FROM,TO,BITS_PER_SECOND).\n\nAgents (tautline agent latency) prove which node they are on by a certificate of\n--tls-client-ca that names it, or by a token of --agent-tokens:\n  tautline provider latency --agent-tokens tautline-system/tautline-latency-agent"
)]
pub(crate) struct LatencyArgs {
    #[command(flatten)]
    common: super::Args,
    #[command(flatten)]
    trust: super::trust::TrustArgs,
    /// Take the table from this file, for pods of all namespaces
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Take agents with a token of this ServiceAccount that is bound to their node
    #[arg(long, value_name = "NS/NAME", value_parser = object)]
    agent_tokens: Option<(String, String)>,
    /// Take all agents at their word: only where nobody else can connect
    #[arg(long)]
    trust_agents: bool,
    /// Derive the echoes' keys from this Secret, which replicas share; the first one
    /// makes it [default: a secret of this process]
    #[arg(long, value_name = "NS/NAME", value_parser = object)]
    echo_key_secret: Option<(String, String)>,
    /// Derive them from this file instead; it reloads
    #[arg(long, value_name = "FILE", conflicts_with = "echo_key_secret")]
    echo_key: Option<PathBuf>,
    /// Keep what was learned in this file, over a restart
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// The label of a node's rack
    #[arg(long, value_name = "LABEL", default_value = RACK)]
    rack_label: String,
    /// Nodes that each node measures, besides those that active rules name
    #[arg(long, value_name = "N", default_value_t = TARGETS, value_parser = targets)]
    targets: usize,
    /// Answer once four fifths of the nodes have an agent, or after so long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "45s")]
    agents_within: Duration,
    /// Let agents measure bandwidth by sending data, seldom
    #[arg(long)]
    allow_transfers: bool,
}

fn object(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("write NAMESPACE/NAME".to_owned()),
    }
}

fn targets(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 4..=32) => Ok(n),
        _ => Err("write a number from 4 to 32".to_owned()),
    }
}

pub(super) async fn run(args: Box<LatencyArgs>) -> Result<()> {
    let certificates = args.common.tls.asks_clients();
    let (cluster, mut server, mut tasks) = prepare(args.common, CONNECTIONS).await?;
    let client = cluster.client().clone();
    let keys = match (&args.echo_key, &args.echo_key_secret) {
        (Some(file), _) => Keys::from_file(file).context("--echo-key")?,
        (None, Some((namespace, name))) => echo_key::shared(&client, namespace, name).await?,
        (None, None) => Keys::random()?,
    };
    let pods = Pods::when_wanted();
    let feed = watched(&cluster, &mut server, &mut tasks, |watch, tasks| {
        watch.rules(tasks);
        let feed = watch.feed.clone();
        let wanted = |not_so_far| pods.clone().wanted(watch.feed.clone(), not_so_far);
        watch.placed_pods_once(wanted, tasks);
        feed
    });
    let settings = Settings {
        rack_label: args.rack_label,
        targets: args.targets,
        state: args.state,
        transfers: args.allow_transfers,
        agents_within: args.agents_within,
    };
    let network = Network::new(feed.clone(), settings);
    let tokens = args
        .agent_tokens
        .map(|(namespace, name)| Arc::new(Tokens::new(&namespace, &name, review(client.clone()))));
    let measuring = Measuring {
        network: network.clone(),
        identity: Identity {
            trust: args.trust_agents,
            certificates,
            tokens,
        },
        keys,
        key_file: args.echo_key,
    };
    measuring.serve(&mut server, &mut tasks);
    let trusted = args.trust.trusted();
    let provider = Latency::new(feed).with(pods).measuring(network);
    let provider = provider.trusting(trusted.clone());
    provider.counts().register(&mut server.registry);
    let pages = Pages::new(provider.clone());
    server.pages(move |path, query| pages.clone().answer(path, query));
    match args.table {
        Some(path) => tables::of_file(&provider, path, &mut tasks)?,
        None => {
            tables::of_config_maps(&client, &provider, trusted, &server.readiness, &mut tasks);
        }
    }
    serve(server, provider, tasks).await
}

/// Asks the API server of tokens.
fn review(client: Client) -> Review {
    let api: Api<TokenReview> = Api::all(client);
    Arc::new(move |token| {
        let api = api.clone();
        Box::pin(async move {
            let spec = TokenReviewSpec {
                audiences: Some(vec![AUDIENCE.to_owned()]),
                token,
            };
            let ask = TokenReview {
                spec,
                ..TokenReview::default()
            };
            let answer = api.create(&PostParams::default(), &ask).await;
            let answer = answer.map_err(|e| e.to_string())?;
            Ok(reviewed(answer))
        })
    })
}

fn reviewed(answer: TokenReview) -> Reviewed {
    let status = answer.status.unwrap_or_default();
    let user = status.user.unwrap_or_default();
    let node = user.extra.and_then(|mut extra| extra.remove(NODE_EXTRA));
    Reviewed {
        authenticated: status.authenticated.unwrap_or_default(),
        audiences: status.audiences.unwrap_or_default(),
        user: user.username.unwrap_or_default(),
        node: node.and_then(|names| names.into_iter().next()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};

    use super::*;

    #[test]
    fn arguments_say_how_they_are_written() {
        assert_eq!(object("ns/x"), Ok(("ns".to_owned(), "x".to_owned())));
        assert!(object("x").unwrap_err().contains("NAMESPACE/"));
        assert_eq!(targets("32"), Ok(32));
        assert!(targets("0").unwrap_err().contains("from 4 to 32"));
    }

    #[test]
    fn a_review_names_the_node_if_the_token_is_bound() {
        let user = UserInfo {
            username: Some("system:serviceaccount:ns:x".into()),
            extra: Some([(NODE_EXTRA.to_owned(), vec!["a".to_owned()])].into()),
            ..UserInfo::default()
        };
        let status = TokenReviewStatus {
            authenticated: Some(true),
            audiences: Some(vec![AUDIENCE.into()]),
            user: Some(user),
            ..TokenReviewStatus::default()
        };
        let review = TokenReview {
            status: Some(status),
            ..TokenReview::default()
        };
        let found = reviewed(review);
        assert!(found.authenticated && found.audiences == [AUDIENCE]);
        assert_eq!(found.node.as_deref(), Some("a"));
        assert_eq!(found.user, "system:serviceaccount:ns:x");
        assert_eq!(reviewed(TokenReview::default()), Reviewed::default());
    }
}
