//! Registers a resource with the kubelet, renews the registration when the kubelet restarts, and
//! answers the kubelet's calls.

use std::{
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use anyhow::{Context, bail};
use futures::{Stream, StreamExt, stream};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{self, Instant},
};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, transport::Server};

use super::{ids::Counted, start::Starter};
use crate::kubelet::{
    FileId, bind, channel,
    device_plugin::{
        AllocateRequest, AllocateResponse, Device, DevicePluginOptions, Empty,
        ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse,
        PreferredAllocationRequest, PreferredAllocationResponse, RegisterRequest,
        device_plugin_server::{DevicePlugin, DevicePluginServer},
        registration_client::RegistrationClient,
    },
    file_id,
};

const VERSION: &str = "v1beta1";
const REGISTER_DEADLINE: Duration = Duration::from_secs(5);
/// The longest time without an open ListAndWatch stream; the kubelet opens one at once after a
/// registration.
const MAX_TIME_WITHOUT_STREAM: Duration = Duration::from_secs(10);
/// The first and the longest wait after a failed registration; the wait doubles in between.
const RETRY_WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

pub(super) struct Registration {
    pub counted: Counted,
    /// The kubelet's directory of device plugins.
    pub plugins: PathBuf,
    /// The devices to offer; the resource is registered while there are any.
    pub devices: watch::Receiver<Arc<Vec<Device>>>,
    pub starter: Arc<Starter>,
    /// The interval at which the sockets are checked.
    pub poll: Duration,
}

/// A socket with its server; both end when this is dropped.
struct Served {
    server: JoinHandle<()>,
    stop: CancellationToken,
    /// The server holds this once, and each of its ListAndWatch streams too.
    streams: Weak<()>,
    path: PathBuf,
    socket: FileId,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
        self.server.abort();
        _ = std::fs::remove_file(&self.path);
    }
}

impl Registration {
    pub async fn run(mut self) {
        let resource = self.counted.resource();
        let mut wait = RETRY_WAITS.0;
        while self.devices.wait_for(|list| !list.is_empty()).await.is_ok() {
            match self.once().await {
                Ok(why) => {
                    wait = RETRY_WAITS.0;
                    tracing::info!(resource, why, "not registered");
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(resource, error, "the kubelet does not register the agent");
                    time::sleep(wait).await;
                    wait = (wait * 2).min(RETRY_WAITS.1);
                }
            }
        }
    }

    /// Serves and registers the resource until both must be repeated, and returns the reason.
    async fn once(&mut self) -> anyhow::Result<&'static str> {
        let kubelet = self.plugins.join("kubelet.sock");
        let id = file_id(&kubelet).await;
        let id = id.with_context(|| format!("{} is missing", kubelet.display()))?;
        let served = self.serve().await?;
        self.register(&kubelet).await?;
        let resource = self.counted.resource();
        tracing::info!(resource, "registered with the kubelet");
        self.starter.metrics.kubelet_registered(resource);

        let mut heard = Instant::now();
        loop {
            tokio::select! {
                () = time::sleep(self.poll) => {}
                withdrawn = withdrawn(&mut self.devices) => {
                    if !withdrawn {
                        bail!("the agent stops");
                    }
                    // The kubelet has to read the empty list; otherwise it counts the old devices
                    // for 5 minutes.
                    time::sleep(Duration::from_secs(1)).await;
                    return Ok("withdrawn");
                }
            }
            if served.streams.strong_count() > 1 {
                heard = Instant::now();
            }
            if file_id(&kubelet).await.ok() != Some(id) {
                return Ok("the kubelet restarted");
            }
            if file_id(&served.path).await.ok() != Some(served.socket) {
                return Ok("the socket is gone");
            }
            if served.server.is_finished() {
                return Ok("the server ended");
            }
            if heard.elapsed() > MAX_TIME_WITHOUT_STREAM {
                return Ok("the kubelet does not list the devices");
            }
        }
    }

    async fn serve(&self) -> anyhow::Result<Served> {
        let path = self.plugins.join(self.counted.endpoint());
        let (listener, socket) = bind(&path).await?;
        let (stop, streams) = (CancellationToken::new(), Arc::new(()));
        let open = Arc::downgrade(&streams);
        let service = Service {
            counted: self.counted,
            devices: self.devices.clone(),
            starter: Arc::clone(&self.starter),
            streams,
            stop: stop.clone(),
        };
        let server = Server::builder()
            .add_service(DevicePluginServer::new(service))
            .serve_with_incoming(UnixListenerStream::new(listener));
        let server = tokio::spawn(async move {
            if let Err(error) = server.await {
                tracing::warn!(%error, "the kubelet's socket is not served");
            }
        });
        Ok(Served {
            server,
            stop,
            streams: open,
            path,
            socket,
        })
    }

    async fn register(&self, kubelet: &Path) -> anyhow::Result<()> {
        let mut client = RegistrationClient::new(channel(kubelet.to_owned()));
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: self.counted.endpoint().to_owned(),
            resource_name: self.counted.resource().to_owned(),
            options: Some(OPTIONS),
        };
        let registered = time::timeout(REGISTER_DEADLINE, client.register(request)).await;
        registered.context("Register got no answer")??;
        Ok(())
    }
}

/// Waits until no devices are offered; returns false if the sender is gone, since the agent stops.
async fn withdrawn(devices: &mut watch::Receiver<Arc<Vec<Device>>>) -> bool {
    devices.wait_for(|list| list.is_empty()).await.is_ok()
}

/// The optional calls of the kubelet: it makes only PreStartContainer.
const OPTIONS: DevicePluginOptions = DevicePluginOptions {
    pre_start_required: true,
    get_preferred_allocation_available: false,
};

/// The gRPC service that the kubelet calls.
struct Service {
    counted: Counted,
    devices: watch::Receiver<Arc<Vec<Device>>>,
    starter: Arc<Starter>,
    /// Each open ListAndWatch stream holds a clone, and so counts.
    streams: Arc<()>,
    stop: CancellationToken,
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let open = Arc::clone(&self.streams);
        let mut devices = self.devices.clone();
        devices.mark_changed();
        let lists = stream::unfold((devices, open), |(mut devices, open)| async {
            devices.changed().await.ok()?;
            let list = devices.borrow_and_update().as_ref().clone();
            Some((Ok(ListAndWatchResponse { devices: list }), (devices, open)))
        });
        let lists = lists.take_until(self.stop.clone().cancelled_owned());
        Ok(Response::new(lists.boxed()))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("all IDs of a resource are alike"))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let requests = request.into_inner().container_requests;
        let answers = requests.iter().map(|r| self.starter.answer(&r.device_ids));
        Ok(Response::new(AllocateResponse {
            container_responses: answers.collect::<Result<_, _>>()?,
        }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        let ids = request.into_inner().device_ids;
        self.starter.start(self.counted, &ids).await?;
        Ok(Response::new(PreStartContainerResponse {}))
    }
}
