//! Runs the console of manifests.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::{
    api::core::v1::{Event, Pod, PodCondition, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use parking_lot::Mutex;
use tautline_api::{ConstraintPolicyOffer, convert, manifest::Item};
use tautline_console::{
    Console,
    source::{AdminAnswer, Component, Read, Source},
};
use tautline_controller::Preview;
use tautline_core::{index::Object, providers::ExternalNames, trust::TrustedNamespaces};
use tautline_gpu_placement::dra::DeviceStore;
use tautline_gpu_slice::GpuSlice;
use tautline_latency::{Latency, report::Pages};
use tautline_provider_client::ClientConfig;
use tautline_runtime::tasks::Tasks;
use tautline_sdk::AdminPage;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    http::Http,
    local::{LocalScheduler, Placement},
    manifests::{pod_namespace, pods},
};

/// The time between two evaluations of bindings without a change; it is longer if an evaluation is
/// slow.
const EVALUATION_INTERVAL: Duration = Duration::from_secs(5);
/// The minimum pause between two evaluations.
const MIN_EVALUATION_PAUSE: Duration = Duration::from_millis(300);

/// A console over a [`LocalScheduler`]'s objects.
pub(crate) struct LocalConsole {
    pub console: Arc<Console>,
    source: Arc<LocalSource>,
    offers: Vec<ConstraintPolicyOffer>,
    providers: ClientConfig,
}

struct LocalSource {
    http: Http,
    extender: String,
    latency: Pages<Latency>,
    gpu: GpuSlice,
    /// The pods, by namespace and name.
    pods: Mutex<BTreeMap<(String, String), Pod>>,
}

/// The content of the console of manifests, made once: its pods are placed and its bindings
/// evaluated.
pub(crate) struct EvaluatedManifests {
    pub console: Arc<Console>,
    source: Arc<LocalSource>,
    local: LocalScheduler,
}

impl EvaluatedManifests {
    pub(crate) async fn new(items: Vec<Item>, trusted: TrustedNamespaces) -> Result<Self> {
        let items = with_uids(items);
        let local = LocalScheduler::start(&items, trusted).await?;
        let ui = LocalConsole::new(&local, &items, (String::new(), String::new()))?;
        for pod in &local.pending {
            ui.place(&local, pod).await?;
        }
        let mut preview = Preview::new(ui.providers)?;
        preview.evaluate(&ui.console.store.snapshot()).await;
        publish(&ui.console, &preview, &ui.offers);
        Ok(Self {
            console: ui.console,
            source: ui.source,
            local,
        })
    }

    /// Returns the answer of a component's admin port.
    pub(crate) async fn admin(&self, component: Component, path: &str) -> Result<AdminAnswer> {
        self.source.answer(component, path).await
    }

    /// Stops the providers.
    pub(crate) async fn stop(self) {
        self.local.stop().await;
    }
}

/// Gives each pod a UID, which distinguishes records.
pub(crate) fn with_uids(mut items: Vec<Item>) -> Vec<Item> {
    for item in &mut items {
        if let Item::Pod(pod) = item {
            let (namespace, name) = key(pod);
            pod.metadata
                .uid
                .get_or_insert(format!("{namespace}/{name}"));
        }
    }
    items
}

impl LocalConsole {
    /// Makes a console; the title and the arguments are those of [`Console::new`].
    pub(crate) fn new(
        local: &LocalScheduler,
        items: &[Item],
        (title, command_args): (String, String),
    ) -> Result<Self> {
        let pods = pods(items).map(|pod| (key(pod), pod.clone()));
        let source = Arc::new(LocalSource {
            http: Http::default(),
            extender: local.admin_url().to_owned(),
            latency: Pages::new(local.latency().clone()),
            gpu: local.gpu_slice().clone(),
            pods: Mutex::new(pods.collect()),
        });
        let mut console = Console::new(title, command_args, Arc::<LocalSource>::clone(&source));
        console.of_manifests = true;
        console.store = local.store().clone();
        console.trusted = local.trusted().clone();
        let mut policies = Vec::new();
        let mut offers = Vec::new();
        for item in items {
            match item {
                Item::Policy(policy) => policies.push(Arc::new(in_namespace(&**policy))),
                Item::Offer(offer) => offers.push(in_namespace(&**offer)),
                _ => {}
            }
        }
        policies.sort_by_key(|p| (p.metadata.namespace.clone(), p.metadata.name.clone()));
        offers.sort_by_key(|o| (o.metadata.namespace.clone(), o.metadata.name.clone()));
        console.policies.reset(policies);
        console
            .offers
            .reset(offers.iter().cloned().map(Arc::new).collect());
        Ok(Self {
            console: Arc::new(console),
            source,
            offers,
            providers: ClientConfig {
                external_names: ExternalNames::Any,
                trusted: local.trusted().clone(),
                shows_details: true,
                ..ClientConfig::default()
            },
        })
    }

    /// Makes and evaluates bindings, as the controller does.
    pub(crate) fn spawn(&self, tasks: &mut Tasks) -> Result<()> {
        let mut preview = Preview::new(self.providers.clone())?;
        let (console, offers) = (Arc::clone(&self.console), self.offers.clone());
        let stop = tasks.stop_token();
        tasks.spawn("bindings", async move {
            let evaluate = async {
                let mut changes = console.store.changes();
                loop {
                    changes.mark_unchanged();
                    let started = Instant::now();
                    preview.evaluate(&console.store.snapshot()).await;
                    publish(&console, &preview, &offers);
                    let pause = MIN_EVALUATION_PAUSE.max(started.elapsed());
                    sleep(pause).await;
                    _ = timeout(EVALUATION_INTERVAL.max(pause * 4), changes.changed()).await;
                }
            };
            tokio::select! {
                () = evaluate => {}
                () = stop.cancelled() => {}
            }
            Ok(())
        });
        Ok(())
    }

    /// Runs one scheduling cycle of a pod; the pod's status then shows the result.
    pub(crate) async fn place(&self, local: &LocalScheduler, pod: &Pod) -> Result<Placement> {
        let placement = local.place(pod).await?;
        let mut pod = pod.clone();
        let spec = pod.spec.get_or_insert_default();
        spec.node_name.clone_from(&placement.node);
        let status = pod.status.get_or_insert_default();
        report_scheduled(status, placement.message.as_deref());
        if placement.node.is_none() {
            self.console.store.apply(Object::Pod(convert::pod(&pod)));
        }
        self.source.pods.lock().insert(key(&pod), pod);
        Ok(placement)
    }

    /// Adds a problem that every page shows.
    pub(crate) fn report(&self, problem: String) {
        let mut all = (**self.console.problems.load()).clone();
        all.push(problem);
        self.console.problems.store(Arc::new(all));
    }
}

/// Writes the condition PodScheduled as kube-scheduler does; `message` is the reason why the pod
/// has no node.
fn report_scheduled(status: &mut PodStatus, message: Option<&str>) {
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|c| c.type_ != "PodScheduled");
    conditions.push(PodCondition {
        type_: "PodScheduled".to_owned(),
        status: if message.is_none() { "True" } else { "False" }.to_owned(),
        reason: message.map(|_| "Unschedulable".to_owned()),
        message: message.map(str::to_owned),
        last_transition_time: Some(Time(Timestamp::now())),
        ..PodCondition::default()
    });
}

fn publish(console: &Console, preview: &Preview, offers: &[ConstraintPolicyOffer]) {
    let bindings = preview.bindings();
    if bindings != **console.bindings.list() {
        console.bindings.reset(bindings);
    }
    let with_status = offers.iter().map(|offer| {
        let meta = &offer.metadata;
        let named = meta.namespace.as_deref().zip(meta.name.as_deref());
        let status = named.and_then(|(namespace, name)| preview.offer_status(namespace, name));
        let mut offer = offer.clone();
        offer.status = status.cloned();
        Arc::new(offer)
    });
    let with_status: Vec<_> = with_status.collect();
    if with_status != **console.offers.list() {
        console.offers.reset(with_status);
    }
}

fn key(pod: &Pod) -> (String, String) {
    let name = pod.metadata.name.clone().unwrap_or_default();
    (pod_namespace(pod).to_owned(), name)
}

fn in_namespace<K: kube::Resource + Clone>(object: &K) -> K {
    let mut object = object.clone();
    object
        .meta_mut()
        .namespace
        .get_or_insert_with(|| "default".to_owned());
    object
}

impl LocalSource {
    async fn answer(&self, component: Component, path: &str) -> Result<AdminAnswer> {
        let page = match component {
            Component::Extender => {
                let url = format!("{}{path}", self.extender);
                let (status, body) = self.http.get(&url).await?;
                return Ok(AdminAnswer {
                    from: "extender".to_owned(),
                    status: status.as_u16(),
                    body,
                });
            }
            Component::Controller if path == "/decisions" => Some(AdminPage::json("[]".to_owned())),
            Component::Controller => None,
            Component::Gpu => self.gpu.admin_page(path),
            Component::Latency => {
                let (path, query) = path.split_once('?').unwrap_or((path, ""));
                let pages = self.latency.clone();
                pages.answer(path.to_owned(), query.to_owned()).await
            }
        };
        let page = page.unwrap_or_else(|| AdminPage::text(404, "manifests have no such page"));
        Ok(AdminAnswer {
            from: format!("{component:?}").to_lowercase(),
            status: page.status,
            body: page.body.into(),
        })
    }
}

impl Source for LocalSource {
    fn admin<'a>(&'a self, component: Component, path: &'a str) -> Read<'a, Vec<AdminAnswer>> {
        Box::pin(async move {
            let answer = self.answer(component, path).await;
            Ok(vec![
                answer.with_context(|| format!("{component:?} {path}"))?,
            ])
        })
    }

    fn pod<'a>(&'a self, namespace: &'a str, name: &'a str) -> Read<'a, Option<Pod>> {
        let pods = self.pods.lock();
        let pod = pods.get(&(namespace.to_owned(), name.to_owned())).cloned();
        Box::pin(std::future::ready(Ok(pod)))
    }

    fn planned_devices(&self) -> Option<DeviceStore> {
        Some(self.gpu.devices())
    }

    fn events<'a>(&'a self, _: &'a str, _: &'a str) -> Read<'a, Vec<Event>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}
