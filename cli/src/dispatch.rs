//! Implements `tautline dispatch`, an external dispatcher of Kueue's MultiKueue: it nominates for each
//! workload the worker cluster where Tautline's rules place its pods best, then the next.
//!
//! `machine` decides when to ask and what to nominate, from the [`answers`] of the clusters; both are
//! pure. This module carries out its actions, on what `store` watches and `workers` answer.

mod answers;
mod kueue;
mod machine;
mod nomination;
mod store;
mod workers;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use kube::Client;
use prometheus_client::{
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use tautline_core::trust::OWN_NAMESPACE;
use tautline_runtime::{
    admin::{self, Readiness},
    events::{EventNote, Events, reference},
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::{
    answers::Answers,
    machine::{Action, Event, Key, Machine, Timing},
    store::Store,
    workers::Workers,
};
use crate::{cluster::ClusterArgs, duration_arg::parse_duration, run_until_shutdown, scope};

/// The source of events.
const DISPATCHER: &str = "tautline-dispatcher";
/// The time after which the machine looks for due workloads although nothing has happened, 1 s.
const TICK: Duration = Duration::from_secs(1);
/// The time within which an event with the same text is not repeated, 600 s.
const QUIET: Duration = Duration::from_secs(600);

#[derive(clap::Args)]
#[command(
    after_help = "Name it in the manager's Kueue configuration: multiKueue.dispatcherName: tautline.io/dispatcher.\n\
    For each workload that MultiKueue may send away it asks the extender of every worker cluster how the pods\n\
    would be placed there, and nominates the cluster with the least cost; after --round the next one too.\n\n\
    Run one replica: workloads wait while it restarts.\n\n\
    Example:\n  tautline dispatch --round 2m"
)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Address of /livez, /readyz and /metrics
    #[arg(long, default_value = "[::]:9090")]
    admin: SocketAddr,
    /// Time that a nominated cluster has to admit a workload, before the next one is added
    #[arg(long, default_value = "5m", value_parser = parse_duration)]
    round: Duration,
    /// Time until a workload that no cluster can take is asked about again
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    retry: Duration,
    /// Namespace of the Secrets with the kubeconfigs: Kueue's, or one with Secrets of the same names
    /// and of accounts with fewer rights
    #[arg(long, value_name = "NS", default_value = "kueue-system", value_parser = scope::name)]
    secret_namespace: String,
    /// Tautline's namespace in the worker clusters
    #[arg(long, value_name = "NS", default_value = OWN_NAMESPACE, value_parser = scope::name)]
    worker_namespace: String,
}

tautline_runtime::metrics! {
    struct Metrics {
        workloads: Family<ByState, Gauge> => "workloads",
            "Workloads that wait for a cluster: nominated, no_cluster (none fits so far), or \
             yielded (another dispatcher nominates clusters for them)";
    }
    labels ByState { state: &'static str }
}

/// Registers all metrics of the process, each with one series, for the reference of metrics.
pub(crate) fn example_metrics(registry: &mut Registry) {
    Metrics::example("", registry.sub_registry_with_prefix("dispatcher"));
    Events::new().0.register(registry);
}

struct Context {
    client: Client,
    store: Arc<Store>,
    workers: Workers,
    events: Arc<Events>,
    metrics: Metrics,
    timing: Timing,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let client = args.cluster.without_retries().await?.client().clone();
    let mut registry = Registry::with_prefix("tautline");
    let metrics = registry.sub_registry_with_prefix("dispatcher");
    let metrics = Metrics::registered("", metrics);
    let (events, queue) = Events::new();
    events.register(&mut registry);
    let (secrets, tautline) = (&args.secret_namespace, &args.worker_namespace);
    let context = Arc::new(Context {
        workers: Workers::new(client.clone(), secrets, tautline),
        client: client.clone(),
        store: Arc::default(),
        events,
        metrics,
        timing: Timing {
            round: args.round,
            retry: args.retry,
        },
    });
    let listener = admin::bind(args.admin).await?;
    tracing::info!(admin = %listener.local_addr()?, "dispatcher starting");
    let (readiness, registry) = (Readiness::default(), Arc::new(registry));
    run_until_shutdown("dispatcher", readiness.clone(), |tasks| {
        let stop = tasks.stop_token();
        readiness.expect(kueue::WORKLOAD);
        let watch = Arc::clone(&context.store).watch(client.clone(), readiness.clone());
        tasks.spawn_until_stop("watch workloads", watch);
        let written = queue.write(client, DISPATCHER, stop.clone());
        tasks.spawn("events", async move {
            written.await;
            Ok(())
        });
        tasks.spawn_until_stop("dispatch", dispatch(context, readiness.clone()));
        let no_pages = |_| std::future::ready(None);
        tasks.spawn(
            "admin",
            admin::serve(listener, registry, readiness, no_pages, stop),
        );
        Ok(())
    })
    .await
}

/// Dispatches workloads once their list is complete.
async fn dispatch(context: Arc<Context>, readiness: Readiness) {
    readiness.wait().await;
    // Bounded by the number of workloads that the machine works on at a time.
    let (done, mut ended) = unbounded_channel();
    let mut machine = Machine::new(context.timing);
    let mut next = Event::Waiting(context.store.waiting());
    loop {
        for action in machine.apply(next, Instant::now()) {
            carry_out(&context, &done, action);
        }
        for (state, count) in ["nominated", "no_cluster", "yielded"]
            .into_iter()
            .zip(machine.counts())
        {
            let workloads = context.metrics.workloads.get_or_create(&ByState { state });
            workloads.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        next = tokio::select! {
            Some(event) = ended.recv() => event,
            () = context.store.changed() => Event::Waiting(context.store.waiting()),
            () = tokio::time::sleep(TICK) => Event::Tick,
        };
    }
}

fn carry_out(context: &Arc<Context>, done: &UnboundedSender<Event>, action: Action) {
    let (context, done) = (Arc::clone(context), done.clone());
    match action {
        Action::Ask { key, number } => {
            tokio::spawn(async move {
                let answers = ask(&context, &key).await;
                _ = done.send(Event::Answered(key, number, answers));
            });
        }
        Action::Nominate { key, from, to } => {
            tokio::spawn(async move {
                let is_written = nominate(&context, &key, &from, &to).await;
                _ = done.send(Event::Written(key, is_written));
            });
        }
        Action::Report { key, reasons } => {
            let text = format!("no cluster takes the pods: {reasons}");
            let note = note(&key, "NoCluster", text);
            context.events.publish_text(QUIET, note);
        }
    }
}

/// Returns the answers of the clusters; `None` if the clusters cannot be read, or the workload has gone.
async fn ask(context: &Context, key: &Key) -> Option<Answers> {
    let candidate = context.store.candidate(key)?;
    let answers = context.workers.ask_all(&candidate).await;
    answers
        .inspect_err(|error| tracing::warn!(%error, "the worker clusters cannot be read"))
        .ok()
        .flatten()
}

async fn nominate(context: &Context, key: &Key, from: &[String], to: &[String]) -> bool {
    let written = nomination::write(context.client.clone(), key, from, to).await;
    let (namespace, workload) = (&key.namespace, &key.name);
    match &written {
        Ok(()) if to.is_empty() => {
            let text = "the clusters that it was nominated for refuse it now".to_owned();
            context
                .events
                .publish_text(Duration::ZERO, note(key, "NoCluster", text));
        }
        Ok(()) => {
            let text = format!("nominated for {}", to.join(", "));
            context
                .events
                .publish_text(Duration::ZERO, note(key, "ClustersNominated", text));
        }
        Err(error) => tracing::warn!(
            namespace,
            workload,
            error = format!("{error:#}"),
            "no nomination"
        ),
    }
    written.is_ok()
}

/// Returns an event on a workload.
fn note(of: &Key, reason: &str, text: String) -> EventNote {
    let kind = (kueue::API_VERSION, kueue::WORKLOAD);
    EventNote {
        regarding: reference(kind, &of.namespace, &of.name, &of.uid),
        secondary: None,
        warning: reason == "NoCluster",
        reason: reason.to_owned(),
        action: "Dispatch",
        text,
    }
}
