//! Implements `tautline conformance`, which checks whether a rule provider complies with the
//! provider contract.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Error, Result, bail};
use kube::ResourceExt;
use tautline_api::{
    convert,
    manifest::{self, Item},
};
use tautline_conformance::{Config, Expectation, Peer, PlacedPod, RULE_PROVIDER_PORT, Workload};
use tautline_provider_client::{client_tls, texts};
use tautline_report::{Case, CaseResult, Report};
use tautline_runtime::input_files::InputFiles;

use crate::{
    duration_arg::parse_duration,
    output::{self, ReportOutput},
    provider_args::{ClientTlsArgs, client_files},
    table::{grid, plain},
};

/// The deadline of a run, unless ten times `--deadline` is longer.
const MIN_RUN_DEADLINE: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
#[command(
    after_help = "It asks the provider as Tautline does, and changes nothing there; only --reserve makes\n\
                  reservations. Each failure comes with its fix. Checks that need more knowledge of the\n\
                  rule are skipped, with the flag that gives it.\n\n\
                  Examples:\n  tautline conformance 127.0.0.1:5309 --rule spread\n  \
                  tautline conformance latency.shop.svc --rule latency --request 5ms --limit 20ms --bad request=fast \\\n    \
                  --nodes near-1,far-1 --peer db=shop/db-0@near-1 \\\n    \
                  --expect 'Violation source=shop/web-0@far-1 destination=shop/db-0@near-1'\n  \
                  tautline conformance 127.0.0.1:5309 --rule spread -o junit > conformance.xml\n\n\
                  Exit codes: 0 no check failed, 1 a check failed, 2 error (no provider answers there)."
)]
pub(crate) struct Args {
    /// The provider, as HOST[:PORT]; the port is 5309 by default
    address: String,
    /// Name of the rule
    #[arg(long, value_name = "NAME")]
    rule: String,
    /// A request that the rule accepts
    #[arg(long, value_name = "TEXT", default_value = "")]
    request: String,
    /// A limit that the rule accepts
    #[arg(long, value_name = "TEXT", default_value = "")]
    limit: String,
    /// A request or a limit that the rule must refuse; may be repeated
    #[arg(long, value_name = "request=TEXT|limit=TEXT")]
    bad: Vec<String>,
    /// Nodes that the provider knows [default: made-up names]
    #[arg(long, value_name = "NODE,...", value_delimiter = ',', value_parser = node)]
    nodes: Vec<String>,
    /// Manifest of the pod to place, of which the provider gets the name, labels, annotations and
    /// requests [default: conformance/pod-0 without any]
    #[arg(long, value_name = "FILE")]
    pod: Option<PathBuf>,
    /// A peer of the pod, which runs on a node; may be repeated [default: a made-up pod]
    #[arg(long = "peer", value_name = "[TARGET=]NS/POD@NODE")]
    peers: Vec<Peer>,
    /// Placed pods and the state that Evaluate must return; may be repeated
    #[arg(
        long = "expect",
        value_name = "STATE TARGET=NS/POD@NODE ... [request=TEXT] [limit=TEXT]"
    )]
    expectations: Vec<Expectation>,
    /// Judge reservations too: they are made on --nodes for pods that do not exist, so use a
    /// provider that serves no cluster
    #[arg(long)]
    reserve: bool,
    /// The deadline of EndpointCost that is judged: that of your extender
    #[arg(long, default_value = "500ms", value_parser = parse_duration)]
    deadline: Duration,
    /// Run only the checks with TEXT in their name
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportOutput,
    #[command(flatten)]
    tls: ClientTlsArgs,
    /// Name in the provider's certificate [default: the host of the address]
    #[arg(long, value_name = "NAME", requires = "provider_ca")]
    tls_name: Option<String>,
}

fn node(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a name is empty; write NODE,NODE".into()),
        name => Ok(name.to_owned()),
    }
}

/// Adds the default port to an address without a port.
fn with_port(address: &str) -> String {
    let after_host = address.rsplit_once(']').map_or(address, |(_, rest)| rest);
    if after_host.contains(':') {
        address.to_owned()
    } else {
        format!("{address}:{RULE_PROVIDER_PORT}")
    }
}

impl Args {
    fn config(self) -> Result<Config> {
        let address = with_port(&self.address);
        let tls = client_tls(&client_files(self.tls))?.map(|tls| match self.tls_name {
            Some(name) => tls.domain_name(name),
            None => tls,
        });
        let mut config = Config {
            tls,
            request: self.request,
            limit: self.limit,
            nodes: self.nodes,
            peers: self.peers,
            expectations: self.expectations,
            reserve: self.reserve,
            deadline: self.deadline,
            timeout: (self.deadline * 10).max(MIN_RUN_DEADLINE),
            filter: self.filter,
            ..Config::new(address, self.rule)
        };
        for bad in &self.bad {
            match bad.split_once('=') {
                Some(("request", text)) => config.bad_request = Some(text.to_owned()),
                Some(("limit", text)) => config.bad_limit = Some(text.to_owned()),
                _ => bail!("--bad {bad:?}: write request=TEXT or limit=TEXT"),
            }
        }
        if let Some(file) = &self.pod {
            let name = || file.display().to_string();
            let text = InputFiles::default().named(file).map_err(Error::msg)?;
            (config.pod, config.workload) = pod(&text).with_context(name)?;
        }
        Ok(config)
    }
}

/// Reads the pod of a manifest, and its properties that providers get.
fn pod(text: &str) -> Result<(PlacedPod, Workload)> {
    let items = manifest::parse(text)?;
    let [Item::Pod(pod)] = &items[..] else {
        bail!("--pod needs one object, of kind Pod");
    };
    let placed = PlacedPod {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
    };
    let workload = Workload {
        labels: pod.labels().clone(),
        annotations: pod.annotations().clone(),
        requests: texts(&convert::pod(pod).requests),
        ..Workload::default()
    };
    Ok((placed, workload))
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let output = args.output;
    let report = tautline_conformance::run(args.config()?).await?;
    let text = || render(&report);
    output::print_report(output, &report, &report, text, text)
}

/// Renders the report. The failures with their fixes come last, where a terminal shows them.
fn render(report: &Report) -> String {
    let same = |a: &Case, b: &Case| {
        let skipped = matches!(a.result, CaseResult::Skipped { .. });
        skipped && a.group == b.group && a.result == b.result
    };
    let rows = report.cases.chunk_by(same).filter_map(|alike| {
        let case = alike.first()?;
        let (result, note) = match &case.result {
            CaseResult::Passed => ("ok", ""),
            CaseResult::Failed { .. } => ("FAILED", "see below"),
            CaseResult::Skipped { reason } => ("skipped", reason.as_str()),
        };
        let name = match alike.len() {
            1 => name(case),
            many => format!("{} and {} more", name(case), many - 1),
        };
        Some(vec![name, result.to_owned(), note.to_owned()])
    });
    let mut text = format!("{}\n\n", plain(&report.suite));
    text += &grid(&["CHECK", "RESULT", "NOTE"], rows);
    for case in &report.cases {
        if let CaseResult::Failed { message, fix } = &case.result {
            let fix = fix.as_deref().unwrap_or_default();
            text += &format!("\n{}: {}\n  fix: {fix}\n", name(case), plain(message));
        }
    }
    let (all, failed, skipped) = (report.cases.len(), report.failed(), report.skipped());
    let passed = all - failed - skipped;
    text + &format!("\n{passed} passed, {failed} failed, {skipped} skipped\n")
}

fn name(case: &Case) -> String {
    format!("{}/{}", case.group, case.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn render_ends_with_failures_and_fixes() {
        let case = |name: &str, result| Case {
            group: "nodes".into(),
            name: name.into(),
            result,
            took: Duration::ZERO,
        };
        let skipped = |name: &str, reason: &str| {
            let reason = reason.into();
            case(name, CaseResult::Skipped { reason })
        };
        let report = Report {
            suite: "provider 127.0.0.1:5309, rule spread".into(),
            cases: vec![
                case("once", CaseResult::Passed),
                skipped("codes", "no node was refused"),
                skipped("usable", "no node is usable"),
                skipped("costs", "no node is usable"),
                case(
                    "every-node",
                    CaseResult::Failed {
                        message: "seen no line for \u{1b}[2Jn2".into(),
                        fix: Some("return a NodeCost for every name".into()),
                    },
                ),
            ],
        };
        insta::assert_snapshot!(render(&report), @"
        provider 127.0.0.1:5309, rule spread

        CHECK                     RESULT    NOTE
        nodes/once                ok        -
        nodes/codes               skipped   no node was refused
        nodes/usable and 1 more   skipped   no node is usable
        nodes/every-node          FAILED    see below

        nodes/every-node: seen no line for �[2Jn2
          fix: return a NodeCost for every name

        1 passed, 1 failed, 3 skipped
        ");
    }

    #[test]
    fn pod_is_read_from_a_manifest() {
        let text = "kind: Pod\napiVersion: v1\n\
                    metadata: {name: web-0, namespace: shop, labels: {app: web}}\n\
                    spec:\n  containers: [{name: c, resources: {requests: {nvidia.com/gpu: 1}}}]\n";
        let (placed, workload) = pod(text).unwrap();
        assert_eq!(placed, "shop/web-0".parse().unwrap());
        assert_eq!(workload.labels["app"], "web");
        assert_eq!(workload.requests["nvidia.com/gpu"], "1");
        let error = pod("").unwrap_err().to_string();
        assert!(error.contains("kind Pod"), "{error}");
    }

    #[test]
    fn nodes_have_names() {
        assert_eq!(node(" a "), Ok("a".to_owned()));
        assert!(node(" ").is_err());
    }

    #[test]
    fn port_has_a_default() {
        for (address, expected) in [
            ("localhost", "localhost:5309"),
            ("10.0.0.7:80", "10.0.0.7:80"),
            ("[::1]", "[::1]:5309"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(with_port(address), expected);
        }
    }
}
