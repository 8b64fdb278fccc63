use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use tautline_scheduler_extender::explain::Record;

use crate::{
    EXIT_NO,
    output::{self, Output},
    pod_name::PodName,
    render,
    replicas::{Answer, ReplicaArgs},
    scope,
    table::plain,
};

/// The extender's own pods, or those of the chart's second scheduler.
const EXTENDERS: [&str; 2] = ["tautline-extender", "tautline-scheduler"];

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
    /// The pod's namespace, if NAMESPACE/ is left out [default: default]
    #[arg(short, long, value_name = "NS", value_parser = scope::name)]
    namespace: Option<String>,
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
    let namespace = args.pod.namespace(args.namespace.as_deref())?;
    let namespace = namespace.unwrap_or("default");
    let path = format!("/explain/{namespace}/{name}");
    let url = args.url.as_deref();
    let answers = args.replicas.get(url, &EXTENDERS, &path).await?;
    let (mut records, mut unknown) = (Vec::<Record>::new(), None);
    for Answer { from, status, body } in answers {
        match status.as_u16() {
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
        return Ok(ExitCode::from(EXIT_NO));
    }
    records.sort_by_key(|r| std::cmp::Reverse(r.at_unix_millis));
    if !args.all {
        records.truncate(1);
    }
    output::print(args.output, &records, |records| {
        records
            .iter()
            .map(|r| render::record(r, None, 40))
            .collect()
    })?;
    Ok(ExitCode::SUCCESS)
}
