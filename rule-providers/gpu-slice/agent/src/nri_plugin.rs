//! The plugin that the container runtime calls before it creates a container: it keeps cards from
//! containers that request none, and knows which containers run.
//!
//! Requested cards come by CDI only. A plugin can be away: the runtime then creates a container
//! without its adjustment, but never without the CDI device that Allocate answered.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tautline_gpu_placement::device_annotation;
use tautline_nri::{
    Identity, Plugin, Request,
    messages::{Container, ContainerAdjustment, ContainerState, KeyValue, PodSandbox},
};
use tautline_runtime::backoff::WatchBackoff;
use tokio::{net::UnixStream, sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    device_plugin::PodRef,
    giver::{Giver, MigInstance},
    injection::{VISIBLE, VOID},
    metrics::{Metrics, Way},
    occupancy::{Held, Occupant},
};

const IDENTITY: Identity = Identity {
    name: "tautline-gpu",
    // Late, so that what other plugins set is seen.
    index: "90",
};
/// On a container: the cards that its pod's record gave it. It outlives the pod's object.
const HELD_ANNOTATION: &str = "tautline.io/gpu-held";
/// The runtime creates no other container meanwhile. The kubelet has called PreStartContainer
/// before, which waits longer and holds up nobody.
const WAIT: Duration = Duration::from_secs(1);
const CONNECT: Duration = Duration::from_secs(2);
/// A connection that lasted so long was a good one.
const LASTING: Duration = Duration::from_secs(10);
/// How long the plugin waits for the pods of the node before it attaches.
const START: Duration = Duration::from_secs(10);
/// Without NRI so long, what the runtime told no longer holds.
const FORGET: Duration = Duration::from_secs(60);
/// The variable by which NVIDIA's runtime knows an old CUDA image: without [`VISIBLE`] it sees all.
const CUDA_VERSION: &str = "CUDA_VERSION";

/// Keeps cards from containers that request none.
pub(crate) struct NriPlugin {
    pub giver: Arc<Giver>,
    /// Whether containers are left alone: the agent surely has no say over cards.
    pub foreign: watch::Receiver<bool>,
    /// Namespaces whose containers keep what their image or spec says in `NVIDIA_VISIBLE_DEVICES`.
    pub exempt: HashSet<String>,
    /// Whether the runtime calls the plugin.
    pub attached: AtomicBool,
    pub metrics: Metrics,
}

/// Connects to the runtime's socket, again and again, until `stop`.
pub(crate) async fn run(plugin: Arc<NriPlugin>, socket: &Path, stop: CancellationToken) {
    let work = async {
        plugin.wait_ready().await;
        let mut backoff = WatchBackoff::default();
        let mut last = String::new();
        let mut attached = Instant::now();
        loop {
            let begun = Instant::now();
            let error = serve(&plugin, socket).await;
            let was_attached = plugin.attach(false);
            if was_attached {
                attached = Instant::now();
            }
            if attached.elapsed() > FORGET {
                plugin.giver.occupancy.lock().clear();
            }
            // A runtime without NRI has no socket: said once.
            if was_attached || error != last {
                tracing::info!(socket = %socket.display(), error, "NRI is not attached");
            }
            last = error;
            if begun.elapsed() > LASTING {
                kube_runtime::utils::Backoff::reset(&mut backoff);
            }
            let wait = backoff.next().unwrap_or(LASTING);
            tokio::time::sleep(wait).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
    plugin.attach(false);
}

/// Serves one connection; returns why it ended.
async fn serve(plugin: &Arc<NriPlugin>, socket: &Path) -> String {
    let stream = match tokio::time::timeout(CONNECT, UnixStream::connect(socket)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return error.to_string(),
        Err(_) => return "the runtime does not accept connections".to_owned(),
    };
    match tautline_nri::serve(stream, &IDENTITY, Arc::clone(plugin)).await {
        Ok(()) => "the runtime closed the connection".to_owned(),
        Err(error) => error.to_string(),
    }
}

impl NriPlugin {
    /// A container that starts earlier gets no card. After the deadline that is better than what
    /// its image says.
    async fn wait_ready(&self) {
        if !self.giver.pods.wait_synced(Instant::now() + START).await {
            tracing::warn!("the pods of the node are not known yet: new containers see no card");
        }
    }

    /// Returns whether it was attached.
    fn attach(&self, attached: bool) -> bool {
        self.metrics.nri.set(i64::from(attached));
        self.attached.swap(attached, Ordering::Relaxed)
    }

    async fn adjust(&self, request: Request) -> Result<ContainerAdjustment, String> {
        let Request {
            pod,
            container,
            deadline,
        } = request;
        let deadline = deadline.min(Instant::now() + WAIT);
        let known = if *self.foreign.borrow() {
            self.giver.pods.by_uid(&pod.uid)
        } else {
            let by_uid = PodRef::Uid(pod.uid.clone());
            self.giver.pods.wait_for(&by_uid, deadline, |_| true).await
        };
        let known = known.as_deref().and_then(|p| p.container(&container.name));
        if known.is_some_and(|c| c.asks.any()) {
            return self.hold(&pod, &container, deadline).await;
        }
        if !self.keeps_from_cards(&pod) || !sees_cards(&container.env) {
            return Ok(ContainerAdjustment::default());
        }
        // Runtimes replace the first only, and the last wins.
        let visible = container.env.iter().filter(|pair| is_visible(pair));
        if visible.count() > 1 {
            return Err(format!(
                "container {} of pod {}/{} has variable {VISIBLE} twice, by its image and its \
                 spec; remove it from the spec",
                container.name, pod.namespace, pod.name
            ));
        }
        let void = KeyValue {
            key: VISIBLE.to_owned(),
            value: VOID.to_owned(),
        };
        Ok(ContainerAdjustment {
            env: vec![void],
            ..ContainerAdjustment::default()
        })
    }

    /// Holds the container's cards until it ends.
    async fn hold(
        &self,
        pod: &PodSandbox,
        container: &Container,
        deadline: Instant,
    ) -> Result<ContainerAdjustment, String> {
        let begun = Instant::now();
        let by_uid = PodRef::Uid(pod.uid.clone());
        let given = self
            .giver
            .give_until(&by_uid, &container.name, deadline, MigInstance::Find);
        let gift = given.await.map_err(|refusal| {
            let (reason, text) = (refusal.reason, refusal.text);
            self.metrics.refused(Way::Nri, reason, begun.elapsed());
            tracing::info!(reason, text, "a container is refused");
            text
        })?;
        let mut adjustment = ContainerAdjustment::default();
        let held = format_held(&gift.occupant.held);
        adjustment
            .annotations
            .insert(HELD_ANNOTATION.to_owned(), held);
        self.giver
            .occupancy
            .lock()
            .hold(&container.id, &pod.id, gift.occupant);
        self.metrics.given(Way::Nri, begun.elapsed());
        Ok(adjustment)
    }

    fn keeps_from_cards(&self, pod: &PodSandbox) -> bool {
        !*self.foreign.borrow() && !self.exempt.contains(&pod.namespace)
    }

    /// What a container that was there before the agent holds.
    fn occupant(&self, pod: &PodSandbox, container: &Container) -> Option<Occupant> {
        let known = self.giver.pods.by_uid(&pod.uid);
        let asks = known.as_deref().map(|pod| {
            let container = pod.container(&container.name);
            container.is_some_and(|c| c.asks.any())
        });
        // The runtime may have copied a pod's annotation.
        if asks == Some(false) {
            return None;
        }
        if let Some(text) = container.annotations.get(HELD_ANNOTATION) {
            return Some(Occupant {
                uid: pod.uid.as_str().into(),
                name: format!("{}/{}", pod.namespace, pod.name),
                held: parse_held(text)?,
            });
        }
        let inventory = self.giver.inventory.borrow();
        self.giver.occupant(&*known?, &inventory)
    }
}

impl Plugin for NriPlugin {
    fn configured(&self, runtime: &str, version: &str, request_timeout: Duration) {
        tracing::info!(runtime, version, ?request_timeout, "NRI is attached");
    }

    fn synchronize(&self, pods: Vec<PodSandbox>, containers: Vec<Container>) {
        let pods: BTreeMap<&str, &PodSandbox> = pods.iter().map(|p| (p.id.as_str(), p)).collect();
        let alive = |c: &&Container| !matches!(c.state(), ContainerState::ContainerStopped);
        let held = containers.iter().filter(alive).filter_map(|container| {
            let pod = pods.get(container.pod_sandbox_id.as_str())?;
            Some((container, self.occupant(pod, container)?))
        });
        let held: Vec<(&Container, Occupant)> = held.collect();
        tracing::debug!(containers = held.len(), "containers that hold cards");
        let mut occupancy = self.giver.occupancy.lock();
        occupancy.clear();
        for (container, occupant) in held {
            occupancy.hold(&container.id, &container.pod_sandbox_id, occupant);
        }
        drop(occupancy);
        self.attach(true);
    }

    async fn create_container(&self, request: Request) -> Result<ContainerAdjustment, String> {
        self.adjust(request).await
    }

    fn container_ended(&self, _: PodSandbox, container: Container) {
        self.giver.occupancy.lock().release(&container.id);
    }

    fn pod_ended(&self, pod: PodSandbox) {
        self.giver.occupancy.lock().release_sandbox(&pod.id);
    }
}

/// Whether NVIDIA's runtime shows cards for such variables.
fn sees_cards(env: &[String]) -> bool {
    let pairs = || env.iter().filter_map(|pair| pair.split_once('='));
    let mut visible = pairs().filter(|(key, _)| *key == VISIBLE).peekable();
    if visible.peek().is_none() {
        return pairs().any(|(key, _)| key == CUDA_VERSION);
    }
    visible.any(|(_, value)| !matches!(value, "" | "none" | VOID))
}

fn is_visible(pair: &str) -> bool {
    pair.split_once('=').is_some_and(|(key, _)| key == VISIBLE)
}

fn format_held(held: &[Held]) -> String {
    device_annotation::format(held)
}

fn parse_held(text: &str) -> Option<Vec<Held>> {
    device_annotation::parse(text, tautline_gpu_placement::shape::CARD).ok()
}
