//! Prepares claims for the kubelet, which finds the driver by its socket.
//!
//! The kubelet prepares the claims of a pod before it starts the pod's containers, and repeats a
//! call that failed, with an event on the pod. After the pod's end it unprepares them, unless
//! another pod of the node uses them.

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, Client, ResourceExt};
use tautline_runtime::api_call::within;
use tokio::time::{self, Instant};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use super::{
    DRIVER, Delivery, PreparedClaim, PreparedClaims,
    grants::{Grant, grants},
};
use crate::{
    assignment::Denial,
    cdi::{OWN_KIND, OwnSpecs},
    giver::Giver,
    kubelet::{
        bind,
        dra::{
            self, NodePrepareResourceResponse, NodePrepareResourcesRequest,
            NodePrepareResourcesResponse, NodeUnprepareResourceResponse,
            NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
            dra_plugin_server::{DraPlugin, DraPluginServer},
        },
        file_id,
        pluginregistration::{
            InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
            registration_server::{Registration, RegistrationServer},
        },
    },
    metrics::Metrics,
};

/// The longest time in which a claim is read from the API server.
const READ_DEADLINE: Duration = Duration::from_secs(5);
/// The interval at which the socket is checked, and the wait after it could not be served.
const SOCKET_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which CDI specs of the device plugin are removed that no pod needs, and the age
/// that such a spec has at least.
const SPECS_INTERVAL: Duration = Duration::from_secs(30);
/// The number of these intervals, 10 minutes, after which prepared claims are looked up that may be
/// gone.
const INTERVALS_PER_SWEEP: u32 = 20;
/// The path of the socket in the kubelet's directory. The kubelet's registration client sends the
/// path as the authority of its requests with `/` as `%2F`, which servers must refuse except before
/// an `@`, in the part for a user's name.
const SOCKET: &str = "plugins_registry/driver@gpu.tautline.io.sock";
/// The version of the service that the driver speaks, as the kubelet names it.
const SERVICE: &str = "v1.DRAPlugin";

/// Prepares claims.
pub(crate) struct Driver {
    pub node: String,
    pub delivery: Delivery,
    pub client: Client,
    pub giver: Arc<Giver>,
    pub claims: Arc<PreparedClaims>,
    pub specs: OwnSpecs,
    pub metrics: Metrics,
}

/// Serves the driver on a socket of the kubelet's directory of plugins.
pub(crate) struct Server {
    pub driver: Arc<Driver>,
    pub kubelet_dir: PathBuf,
}

/// The socket's file, which goes with the server.
struct SocketFile<'a>(&'a Path);

impl Drop for SocketFile<'_> {
    fn drop(&mut self) {
        _ = std::fs::remove_file(self.0);
    }
}

impl Server {
    /// Runs until it is dropped; containers that run keep their cards.
    pub async fn run(self) {
        let path = self.kubelet_dir.join(SOCKET);
        let sweeps = async {
            for round in 1_u32.. {
                time::sleep(SPECS_INTERVAL).await;
                self.driver.sweep_specs();
                if round % INTERVALS_PER_SWEEP == 0 {
                    self.driver.sweep().await;
                }
            }
        };
        let serving = async {
            loop {
                if let Err(error) = self.serve(&path).await {
                    let error = format!("{error:#}");
                    tracing::warn!(error, "the kubelet does not see the driver {DRIVER}");
                }
                time::sleep(SOCKET_POLL_INTERVAL).await;
            }
        };
        tokio::join!(sweeps, serving);
    }

    /// Serves until the socket's file is gone.
    async fn serve(&self, path: &Path) -> anyhow::Result<()> {
        let (listener, socket) = bind(path).await?;
        let _file = SocketFile(path);
        let served = tonic::transport::Server::builder()
            .add_service(RegistrationServer::from_arc(Arc::clone(&self.driver)))
            .add_service(DraPluginServer::from_arc(Arc::clone(&self.driver)))
            .serve_with_incoming(UnixListenerStream::new(listener));
        let replaced = async {
            while file_id(path).await.ok() == Some(socket) {
                time::sleep(SOCKET_POLL_INTERVAL).await;
            }
        };
        tokio::select! {
            ended = served => Ok(ended?),
            () = replaced => Ok(()),
        }
    }
}

impl Driver {
    /// Prepares a claim; a claim that is prepared already gets the same devices.
    async fn prepare(&self, claim: &dra::Claim) -> Result<Vec<dra::Device>, Denial> {
        if self.delivery != Delivery::Dra {
            return Err(Denial::new(
                "DeliveryIsDevicePlugin",
                "this node gives out its cards by the device plugin",
                "set gpu.delivery to dra in the chart, or delete the pod and the claim",
            ));
        }
        let object = self.read(claim).await?;
        let inventory = self.giver.cards().await?;
        let granted = grants(&object, &self.node, &inventory)?;
        let prepared = PreparedClaim {
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            devices: granted.iter().map(Grant::prepared).collect(),
        };
        // The claim is listed first: MIG instances that no claim names are destroyed.
        let is_new = self.claims.add(&claim.uid, prepared).map_err(not_written)?;
        let devices = self.give(&claim.uid, &granted).await;
        if devices.is_err() && is_new {
            self.forget(&claim.uid).map_err(not_written)?;
        }
        devices
    }

    async fn read(&self, claim: &dra::Claim) -> Result<ResourceClaim, Denial> {
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &claim.namespace);
        let object = within(READ_DEADLINE, api.get(&claim.name)).await;
        let object = object.map_err(|error| {
            let mend = if error.code() == Some(403) {
                "give the agent the right get resourceclaims, as the chart does"
            } else {
                "the kubelet tries again"
            };
            Denial::new(
                "ClaimUnread",
                format!("the claim is not read: {error}"),
                mend,
            )
        })?;
        if object.uid().as_deref() != Some(claim.uid.as_str()) {
            let text = "another claim has the name by now";
            return Err(Denial::new("ClaimReplaced", text, "delete the pod"));
        }
        Ok(object)
    }

    /// Writes a CDI device for each request of the claim, since a container may have one of several.
    async fn give(&self, uid: &str, granted: &[Grant]) -> Result<Vec<dra::Device>, Denial> {
        let mut requests: BTreeMap<&str, Vec<&Grant>> = BTreeMap::new();
        for grant in granted {
            requests.entry(&grant.request).or_default().push(grant);
        }
        let mut devices = Vec::with_capacity(granted.len());
        for (request, grants) in requests {
            let token = token(uid, request);
            let given = grants.iter().map(|g| (g.part.clone(), g.share.clone()));
            let given: Vec<_> = given.collect();
            let is_admin = grants.iter().all(|grant| grant.is_admin);
            let edits = self.giver.edits_of_claim(uid, &given, is_admin).await?;
            self.specs.write(&token, edits).map_err(not_written)?;
            devices.extend(grants.iter().map(|grant| dra::Device {
                request_names: vec![request.to_owned()],
                pool_name: self.node.clone(),
                device_name: grant.device.clone(),
                cdi_device_ids: vec![format!("{OWN_KIND}={token}")],
                share_id: grant.share_id.clone(),
            }));
        }
        Ok(devices)
    }

    /// Removes what is left of a claim: its CDI specs first, so that a failure is repeated.
    fn forget(&self, uid: &str) -> std::io::Result<()> {
        self.specs.remove_all(&token(uid, ""))?;
        self.claims.remove(uid)
    }

    /// Removes the specs that the device plugin has left, once no pod has a record of cards.
    fn sweep_specs(&self) {
        let pods = &self.giver.pods;
        let is_left = pods.all().iter().any(|p| p.record.is_some() && !p.ended);
        if self.delivery != Delivery::Dra || !pods.are_known() || is_left {
            return;
        }
        if let Err(error) = self.specs.sweep(&HashSet::new(), SPECS_INTERVAL) {
            tracing::warn!(%error, "old CDI specs stay");
        }
    }

    /// Forgets prepared claims that do not exist any more, which the kubelet has not unprepared: for
    /// example because its directory was deleted.
    async fn sweep(&self) {
        for (uid, prepared) in self.claims.all() {
            let api = Api::<ResourceClaim>::namespaced(self.client.clone(), &prepared.namespace);
            let Ok(object) = within(READ_DEADLINE, api.get_opt(&prepared.name)).await else {
                continue;
            };
            let gone = object.is_none_or(|claim| claim.uid() != Some(uid.clone()));
            if gone && let Err(error) = self.forget(&uid) {
                tracing::warn!(%error, "a claim that is gone stays prepared");
            }
        }
    }

    fn explain(&self, claim: &dra::Claim, why: &Denial) -> String {
        format!(
            "{}: claim {}/{} gets no card of node {}: {}; {}",
            why.code, claim.namespace, claim.name, self.node, why.text, why.mend
        )
    }
}

/// Returns the name of a request's CDI device; with an empty request, the start that all names of
/// the claim's devices have.
fn token(uid: &str, request: &str) -> String {
    format!("claim-{uid}-{request}")
}

fn not_written(error: std::io::Error) -> Denial {
    let text = format!("the claim is not written: {error}");
    let mend = "mend /run/tautline and /var/run/cdi on the node; the kubelet tries again";
    Denial::new("ClaimNotWritten", text, mend)
}

#[tonic::async_trait]
impl DraPlugin for Driver {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims;
        let answers = claims.into_iter().map(async |claim| {
            let begun = Instant::now();
            let answer = match self.prepare(&claim).await {
                Ok(devices) => {
                    self.metrics.given(begun.elapsed());
                    let error = String::new();
                    NodePrepareResourceResponse { devices, error }
                }
                Err(why) => {
                    self.metrics.refused(why.code, begun.elapsed());
                    let error = self.explain(&claim, &why);
                    tracing::info!(error, "a claim is not prepared");
                    let devices = Vec::new();
                    NodePrepareResourceResponse { devices, error }
                }
            };
            (claim.uid, answer)
        });
        let claims = join_all(answers).await.into_iter().collect();
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter();
        let answers = claims.map(|claim| {
            let left = self.forget(&claim.uid).map_err(not_written);
            let error = left.map_or_else(|why| self.explain(&claim, &why), |()| String::new());
            (claim.uid, NodeUnprepareResourceResponse { error })
        });
        let claims = answers.collect();
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}

#[tonic::async_trait]
impl Registration for Driver {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: DRIVER.to_owned(),
            endpoint: String::new(),
            supported_versions: vec![SERVICE.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus {
            plugin_registered,
            error,
        } = request.into_inner();
        if plugin_registered {
            tracing::info!("the driver {DRIVER} is registered with the kubelet");
            self.metrics.kubelet_registered(DRIVER);
        } else {
            tracing::warn!(error, "the kubelet does not register the driver {DRIVER}");
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
