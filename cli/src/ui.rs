//! Implements `tautline ui`, the web console.

mod live;
mod local;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use tautline_console::{Console, quote};
use tautline_core::trust::TrustedNamespaces;
use tautline_runtime::{error_text::error_text, http::Limits, manifest_files, tasks::Tasks};
use tokio::net::TcpListener;

use crate::{
    local::LocalScheduler, manifests::NamespacedManifestArgs, output, provider_args::TrustArgs,
    replicas::ReplicaArgs,
};

pub(crate) use local::{EvaluatedManifests, LocalConsole, with_uids};

const PORT: u16 = 8484;
/// The number of ports that are tried, from [`PORT`] on, before any other port.
const MAX_PORT_TRIES: u16 = 50;

#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct ListenArgs {
    /// Address of the console, on 127.0.0.1 or [::1] [default: 127.0.0.1, port 8484 or the next
    /// free one]
    #[arg(long, value_name = "ADDRESS", value_parser = loopback)]
    listen: Option<SocketAddr>,
}

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
    manifests: NamespacedManifestArgs,
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
            args.manifests.manifests.judge(&manifests)?;
            let files = args.manifests.manifests.files();
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
    let args: String = names.iter().map(|f| format!(" -f {}", quote(f))).collect();
    let ui = LocalConsole::new(&local, &items, (names.join(", "), args))?;
    let mut tasks = Tasks::default();
    ui.spawn(&mut tasks)?;
    serve(listener, Arc::clone(&ui.console), &mut tasks)?;
    let place_all = async {
        for pod in &local.pending {
            match ui.place(&local, pod).await {
                Ok(placed) if !placed.not_considered.is_empty() => {
                    let fields = placed.not_considered.join(", ");
                    let (namespace, name) = (&placed.namespace, &placed.pod);
                    ui.report(format!("pod {namespace}/{name}: not considered: {fields}"));
                }
                Ok(_) => {}
                Err(error) => ui.report(error_text(error.as_ref())),
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
    let serve = tautline_console::serve(Limits::default(), listener, console, stop);
    tasks.spawn("console", serve);
    output::write(&format!("http://{address}\n"))
}

/// Parses an address of loopback. Other addresses are refused, since the console refuses requests
/// that name another host.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let allowed = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ];
    match text.parse::<SocketAddr>() {
        Ok(address) if allowed.contains(&address.ip()) => Ok(address),
        Ok(_) => Err(
            "the console has no login: it listens on 127.0.0.1 or [::1] only; to see it from \
             another machine, forward the port with ssh -L"
                .to_owned(),
        ),
        Err(_) => Err("write 127.0.0.1:PORT; port 0 is any free one".to_owned()),
    }
}

pub(crate) async fn bind(args: &ListenArgs) -> Result<TcpListener> {
    if let Some(address) = args.listen {
        let bound = TcpListener::bind(address).await;
        return bound.with_context(|| format!("--listen {address}"));
    }
    for port in (PORT..PORT + MAX_PORT_TRIES).chain([0]) {
        if let Ok(bound) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            return Ok(bound);
        }
    }
    bail!("no free port on 127.0.0.1; name one with --listen")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_allowed() {
        for good in ["127.0.0.1:0", "127.0.0.1:8484", "[::1]:9000"] {
            assert!(loopback(good).is_ok(), "{good}");
        }
        for bad in ["0.0.0.0:8484", "[::]:1", "10.0.0.1:80", "127.0.0.2:80"] {
            assert!(loopback(bad).unwrap_err().contains("ssh -L"), "{bad}");
        }
        for bad in ["8484", "localhost:8484", ""] {
            assert!(
                loopback(bad).unwrap_err().contains("127.0.0.1:PORT"),
                "{bad}"
            );
        }
    }

    #[tokio::test]
    async fn next_port_is_taken_when_the_default_is_in_use() {
        let first = bind(&ListenArgs::default()).await.unwrap();
        let second = bind(&ListenArgs::default()).await.unwrap();
        let (first, second) = (first.local_addr().unwrap(), second.local_addr().unwrap());
        assert_ne!(first, second);
        assert!(second.ip().is_loopback());
    }
}
