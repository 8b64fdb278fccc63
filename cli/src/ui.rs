//! Implements `tautline ui`, the web console.

mod listen;
mod live;
mod local;

use std::{process::ExitCode, sync::Arc};

use anyhow::Result;
use tautline_console::{Console, shell};
use tautline_core::trust::TrustedNamespaces;
use tautline_runtime::{error_text::error_text, manifest_files, tasks::Tasks};
use tokio::net::TcpListener;

use crate::{
    local::LocalScheduler, manifests::ManifestArgs, output, provider_args::TrustArgs,
    replicas::ReplicaArgs,
};

pub(crate) use listen::{ListenArgs, bind};
pub(crate) use local::{LocalConsole, with_uids};

#[derive(clap::Args)]
#[command(
    after_help = "It shows what the kubeconfig's user may read, writes nothing, and opens nothing in the cluster:\n\
    lists and watches by the API, Tautline's admin ports through it (create pods/portforward).\n\
    Without a right, that part is missing and the page says which. Ctrl-C ends it.\n\n\
    It listens on loopback only. Other users of this machine can reach such a port, and then see\n\
    what you see: do not run it where that matters.\n\n\
    With -f the extender and the providers gpu-slice, latency and scripted run here, and the pods\n\
    that wait in the manifests are placed.\n\n\
    Examples:\n  tautline ui\n  tautline ui --context production --listen 127.0.0.1:9000\n  \
    tautline ui -f examples/edge-inference"
)]
pub(crate) struct Args {
    #[command(flatten)]
    manifests: ManifestArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    listen: ListenArgs,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let listener = bind(&args.listen).await?;
    let trusted = |own: &str| args.trust.trusted_namespaces(own);
    match args.manifests.load()? {
        Some(manifests) => {
            args.manifests.judge(&manifests)?;
            let files = args.manifests.files();
            let own = tautline_core::trust::OWN_NAMESPACE;
            of_manifests(listener, manifests, files, trusted(own)).await?;
        }
        None => {
            let own = &args.replicas.tautline_namespace;
            live::run(listener, &args.replicas, trusted(own)).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn of_manifests(
    listener: TcpListener,
    manifests: manifest_files::Manifests,
    files: &[std::path::PathBuf],
    trusted: TrustedNamespaces,
) -> Result<()> {
    let items = local::with_uids(manifests.items);
    let local = LocalScheduler::start(&items, trusted).await?;
    let names: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
    let args: String = names
        .iter()
        .map(|f| format!(" -f {}", shell::quote(f)))
        .collect();
    let ui = LocalConsole::new(&local, &items, (names.join(", "), args))?;
    let mut tasks = Tasks::default();
    ui.spawn(&mut tasks)?;
    serve(listener, Arc::clone(&ui.console), &mut tasks)?;
    let place_all = async {
        for pod in &local.pending {
            if let Err(error) = ui.place(&local, pod).await {
                ui.report(error_text(error.as_ref()));
            }
        }
    };
    let until_stopped = tasks.run(tautline_runtime::tasks::shutdown_signal());
    let (result, ()) = futures::future::join(until_stopped, place_all).await;
    local.stop().await;
    result
}

/// Serves the console as a task, and prints its address.
pub(crate) fn serve(listener: TcpListener, console: Arc<Console>, tasks: &mut Tasks) -> Result<()> {
    let address = listener.local_addr()?;
    let stop = tasks.stop_token();
    tasks.spawn("console", tautline_console::serve(listener, console, stop));
    output::write(&format!("http://{address}\n"))
}
