use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use tautline_scheduler_extender::explain::Record;

use crate::{
    EXIT_NO,
    http::Http,
    output::{self, Output},
    pod_name::PodName,
    render, scope,
    table::plain,
};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  kubectl -n tautline-system port-forward deploy/tautline-extender 9090 &\n  tautline explain shop/web-0\n  tautline explain web-0 -n shop --all"
)]
pub(crate) struct Args {
    /// The pod, as NAMESPACE/NAME, or NAME with -n
    #[arg(value_parser = PodName::parse)]
    pod: PodName,
    /// The pod's namespace, if NAMESPACE/ is left out [default: default]
    #[arg(short, long, value_name = "NS", value_parser = scope::name)]
    namespace: Option<String>,
    /// The extender's admin port
    #[arg(
        long,
        default_value = "http://127.0.0.1:9090",
        env = "TAUTLINE_EXTENDER"
    )]
    url: String,
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
    let url = format!(
        "{}/explain/{namespace}/{name}",
        args.url.trim_end_matches('/')
    );
    let (status, body) = Http::default().get(&url).await?;
    match status.as_u16() {
        200 => {}
        404 => {
            note!("{}", plain(&String::from_utf8_lossy(&body)));
            return Ok(ExitCode::from(EXIT_NO));
        }
        other => bail!(
            "{url} answered {other}: {}",
            String::from_utf8_lossy(&body).trim()
        ),
    }
    let mut records: Vec<Record> =
        serde_json::from_slice(&body).with_context(|| format!("{url} returned no record"))?;
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
