//! Implements `tautline explain`, which shows from the extender's records why a pod is on its node
//! or pending.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, ResourceExt};
use tautline_api::{
    ConstraintPolicyBinding, ConstraintPolicyOffer, constraint::Compliance, display::eviction_wait,
};
use tautline_console::source::{AdminAnswer, Component};
use tautline_scheduler_extender::explain::Record;

use crate::{
    cluster_fault, exit_code, fetch,
    output::{self, Output},
    pod_name::PodName,
    render::{self, View},
    replicas::ReplicaArgs,
    scope::{NamespaceArgs, Scope},
    table::plain,
};

#[derive(clap::Args)]
#[command(
    after_help = "It asks every replica of the extender, through the API server (create pods/portforward).\n\n\
                  Examples:\n  tautline explain shop/web-0\n  tautline explain web-0 -n shop --all\n  \
                  tautline explain shop/web-0 --url http://127.0.0.1:9090"
)]
pub(crate) struct Args {
    /// The pod, as NAMESPACE/NAME, or NAME with -n
    #[arg(value_parser = PodName::parse)]
    pod: PodName,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// Admin port of one extender, instead of all replicas
    #[arg(long, env = "TAUTLINE_EXTENDER")]
    url: Option<String>,
    #[command(flatten)]
    replicas: ReplicaArgs,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Show every record, not only the last
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let name = &args.pod.name;
    let cluster = &args.replicas.cluster;
    let named = args.pod.namespace(args.namespace.named())?;
    let namespace = &named.map_or_else(|| cluster.namespace(), str::to_owned);
    let path = format!("/explain/{namespace}/{name}");
    let (url, extenders) = (args.url.as_deref(), Component::Extender.app_names());
    let answers = args.replicas.get(url, extenders, &path).await?;
    let (mut records, mut unknown) = (Vec::<Record>::new(), None);
    for AdminAnswer { from, status, body } in answers {
        match status {
            200 => {
                let all: Vec<Record> = serde_json::from_slice(&body)
                    .with_context(|| format!("{from} returned no record"))?;
                records.extend(all);
            }
            404 => _ = unknown.get_or_insert(body),
            other => bail!(
                "{from} answered {other}: {}",
                String::from_utf8_lossy(&body).trim()
            ),
        }
    }
    if let (true, Some(why)) = (records.is_empty(), unknown) {
        note!("{}", plain(&String::from_utf8_lossy(&why)));
        return Ok(exit_code(false));
    }
    records.sort_by_key(|r| std::cmp::Reverse(r.at_unix_millis));
    if !args.all {
        records.truncate(1);
    }
    let violations = match (args.output, url.filter(|url| !url.is_empty())) {
        (Output::Table, None) => {
            let client = cluster.client().await?;
            let read = violations(&client, namespace, name).await;
            read.unwrap_or_else(|error| {
                note!("warning: {}", cluster_fault::text(&error));
                String::new()
            })
        }
        _ => String::new(),
    };
    output::print(args.output, &records, |records| {
        let view = View::of_stdout(40);
        let records = records.iter().map(|r| render::record(r, None, view));
        records.collect::<String>() + &violations
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the pod's bindings, and names those in violation.
async fn violations(client: &Client, namespace: &str, pod: &str) -> Result<String> {
    let scope = Scope::Namespace(namespace.to_owned());
    let (bindings, offers) = tokio::join!(
        fetch::list::<ConstraintPolicyBinding>(client, &scope),
        fetch::list::<ConstraintPolicyOffer>(client, &scope),
    );
    let (bindings, offers) = (
        fetch::parse_readable(&bindings?),
        fetch::parse_readable(&offers?),
    );
    Ok(lines(pod, bindings, &offers, Timestamp::now()))
}

fn lines(
    pod: &str,
    bindings: Vec<ConstraintPolicyBinding>,
    offers: &[ConstraintPolicyOffer],
    now: Timestamp,
) -> String {
    let violated = bindings.into_iter().filter(|binding| {
        let mut targets = binding.spec.targets.values();
        binding.compliance() == Compliance::Violation
            && targets.any(|t| t.is_local_pod() && t.name == pod)
    });
    let line = |binding: ConstraintPolicyBinding| {
        let offer = offers.iter().find(|o| o.name_any() == binding.spec.offer);
        let wait = offer
            .and_then(|offer| eviction_wait(&binding, offer, now))
            .map_or_else(String::new, |wait| format!("; next eviction {wait}"));
        let reason = binding.status.as_ref().map(|s| s.first_reason.as_str());
        let text = plain(&format!(
            "in violation: binding {} of offer {}: {}{wait}",
            binding.name_any(),
            binding.spec.offer,
            reason.unwrap_or_default()
        ));
        format!("  {text}\n")
    };
    violated.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixtures;

    #[test]
    fn explanation_names_bindings_in_violation_and_their_next_eviction() {
        let of = |pod| {
            lines(
                pod,
                fixtures::bindings(),
                &fixtures::offers(),
                fixtures::now(),
            )
        };
        assert_eq!(
            of("detectors-violation-0"),
            "  in violation: binding detectors-violation of offer detectors: 31ms to north-1 > 20ms; \
             next eviction in 73s (2026-01-02T12:01:13Z), after the offer's cool-down\n"
        );
        assert_eq!(of("detectors-a-0"), "");
        let mut in_east = fixtures::bindings();
        for binding in &mut in_east {
            let targets = binding.spec.targets.values_mut();
            targets.for_each(|target| target.cluster = "east".to_owned());
        }
        let (pod, offers) = ("detectors-violation-0", fixtures::offers());
        assert_eq!(lines(pod, in_east, &offers, fixtures::now()), "");
    }
}
