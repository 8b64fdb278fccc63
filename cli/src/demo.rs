//! Implements `tautline demo`, which schedules the pods of a bundled example step by step, without
//! a cluster.

mod group;

use std::{io::BufRead, sync::Arc};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use tautline_api::manifest;
use tautline_core::trust::TrustedNamespaces;
use tautline_runtime::tasks::{self, Tasks};
use tokio::sync::mpsc;

use crate::{
    local::LocalScheduler,
    output,
    render::{self, View},
    ui::{self, LocalConsole},
};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  tautline demo\n  tautline demo --ui")]
pub(crate) struct Args {
    /// Open the web console on it: each Enter takes the next step, Ctrl-C ends it
    #[arg(long)]
    ui: bool,
}

const TITLE: &str = "examples/edge-inference";

/// The files of the example `examples/edge-inference/`.
const FILES: [&str; 4] = [
    include_str!("../../examples/edge-inference/1-cluster.yaml"),
    include_str!("../../examples/edge-inference/2-providers.yaml"),
    include_str!("../../examples/edge-inference/3-policies.yaml"),
    include_str!("../../examples/edge-inference/4-pods.yaml"),
];

const NAMESPACE: &str = "vision";

pub(crate) async fn run(args: Args) -> Result<()> {
    let mut items = Vec::new();
    for file in FILES {
        items.extend(manifest::parse(file)?);
    }
    let items = ui::with_uids(items);
    // The console's page of latencies shows tables that count for all namespaces.
    let trusted = if args.ui {
        TrustedNamespaces::all()
    } else {
        TrustedNamespaces::default()
    };
    let local = LocalScheduler::start(&items, trusted).await?;
    let result = if args.ui {
        let names = (TITLE.to_owned(), format!(" -f {TITLE}"));
        run_console(&local, &LocalConsole::new(&local, &items, names)?).await
    } else {
        async {
            run_steps(&local, None).await?;
            group::show().await
        }
        .await
    };
    local.stop().await;
    result
}

async fn run_console(local: &LocalScheduler, ui: &LocalConsole) -> Result<()> {
    let listener = ui::bind(&ui::ListenArgs::default()).await?;
    let mut tasks = Tasks::default();
    ui.spawn(&mut tasks)?;
    ui::serve(listener, Arc::clone(&ui.console), &mut tasks)?;
    let stop = tasks.stop_token();
    let steps = async {
        let mut walk = Walk {
            ui,
            enter: enter_pressed(),
            is_first: true,
        };
        tokio::select! {
            result = run_steps(local, Some(&mut walk)) => result,
            () = stop.cancelled() => Ok(()),
        }
    };
    let serve = tasks.run(tasks::shutdown_signal());
    let (served, steps) = futures::future::join(serve, steps).await;
    served.and(steps)
}

/// The walk through the steps, one for each Enter of the user.
struct Walk<'a> {
    ui: &'a LocalConsole,
    enter: mpsc::Receiver<()>,
    is_first: bool,
}

impl Walk<'_> {
    /// Waits for Enter, except before the first step and once the standard input is closed.
    async fn next(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_first) || self.enter.is_closed() && self.enter.is_empty() {
            return Ok(());
        }
        output::write("(Enter: the next step)\n")?;
        _ = self.enter.recv().await;
        Ok(())
    }
}

/// Sends a message for each line of the standard input. Its thread ends with the process.
fn enter_pressed() -> mpsc::Receiver<()> {
    let (pressed, enter) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut lines = std::io::stdin().lock().lines();
        while let Some(Ok(_)) = lines.next()
            && pressed.blocking_send(()).is_ok()
        {}
    });
    enter
}

/// The text of each step, and the pod that it places.
const STEPS: [(&str, &str); 6] = [
    (
        "1. A detector. `latency` keeps the far zone out, `gpu-slice` the cards that do not\n   \
        run its model. Of the rest the nearest wins, as the rule says `prefer: Nearest`.",
        "detector-0",
    ),
    (
        "2. The next one sees what the first one took.",
        "detector-1",
    ),
    (
        "3. A trainer asks for two whole cards and does not care for latency.",
        "trainer-0",
    ),
    (
        "4. A tracker must be within 100us of the gateway, and no GPU is so near. It stays\n   \
        pending, with reasons that say which rule and why; kube-scheduler shows the same.",
        "tracker-0",
    ),
    (
        "5. An aggregator is to be within 20 ms, better 5 ms: all nodes within 5 ms are equally\n   \
        good, and kube-scheduler's own preferences choose, such as a spread over nodes.\n   \
        (This program has none, and takes the first name.)",
        "aggregator-0",
    ),
    (
        "6. No offer selects the dashboard: it passes through untouched.",
        "dashboard-0",
    ),
];

async fn run_steps(local: &LocalScheduler, mut walk: Option<&mut Walk<'_>>) -> Result<()> {
    output::write(&format!(
        "An edge inference service: {} nodes in 3 zones, some with shared GPUs.\n\
         The camera gateway runs at north-1; detectors must be within 20 ms of it and\n\
         get a quarter of a GPU. The real extender and the real rule providers run on\n\
         loopback; this program plays kube-scheduler's part over HTTP.\n\
         (The same with your own manifests: tautline plan -f DIR)\n\n",
        local.node_count()
    ))?;
    for (text, pod) in STEPS {
        step(local, walk.as_deref_mut(), text, pod).await?;
    }
    if let Some(walk) = &mut walk {
        walk.next().await?;
        walk.is_first = true;
    }
    local.relabel(NAMESPACE, "latency-maintenance", "latency", true);
    local.relabel(NAMESPACE, "latency-table", "latency", false);
    step(
        local,
        walk,
        "7. Fibre work in the north is due. The operator re-binds the rule `latency` to\n   \
            another provider by moving a label; nothing restarts:\n   \
            $ kubectl -n vision label service latency-maintenance constraint.ciena.com/constraint-latency=enabled\n   \
            $ kubectl -n vision label service latency-table constraint.ciena.com/constraint-latency-\n   \
            The next detector goes south.",
        "detector-2",
    )
    .await
}

async fn step(
    local: &LocalScheduler,
    mut walk: Option<&mut Walk<'_>>,
    text: &str,
    pod: &str,
) -> Result<()> {
    if let Some(walk) = &mut walk {
        walk.next().await?;
    }
    let named = |p: &&Pod| p.metadata.name.as_deref() == Some(pod);
    let pod = local
        .pending
        .iter()
        .find(named)
        .with_context(|| format!("no pod {pod}"))?;
    let placement = match walk {
        Some(walk) => walk.ui.place(local, pod).await?,
        None => local.place(pod).await?,
    };
    output::write(&format!(
        "{text}\n\n{}\n",
        render::placement(&placement, View::of_stdout(12))
    ))
}
