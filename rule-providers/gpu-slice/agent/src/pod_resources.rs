//! The client of the kubelet's PodResources API, which lists the device IDs that each container
//! holds.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use tokio::{net::UnixStream, time};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};
use tower::service_fn;

use crate::kubelet::pod_resources::{
    ListPodResourcesRequest, PodResources, pod_resources_lister_client::PodResourcesListerClient,
};

/// The time in which a list must arrive, including retries, and in which a connection must open.
const DEADLINE: Duration = Duration::from_secs(2);
/// The pause before a retry; the kubelet rejects calls above 100 per second.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The largest list, in bytes; each ID of 16 cards has an entry of about 50 bytes.
const MAX_LIST_BYTES: usize = 32 << 20;

/// A client that connects at the first call, and reconnects after a restart of the kubelet.
#[derive(Clone, Debug)]
pub(crate) struct PodResourcesClient {
    client: PodResourcesListerClient<Channel>,
    socket: PathBuf,
}

impl PodResourcesClient {
    pub fn new(kubelet_dir: &Path) -> Self {
        let socket = kubelet_dir.join("pod-resources/kubelet.sock");
        let channel = channel(socket.clone());
        Self {
            client: PodResourcesListerClient::new(channel)
                .max_decoding_message_size(MAX_LIST_BYTES),
            socket,
        }
    }

    /// Returns all pods of the node, without their init containers except sidecars.
    pub async fn list(&self) -> Result<Vec<PodResources>, Status> {
        let calls = async {
            loop {
                let mut client = self.client.clone();
                match client.list(ListPodResourcesRequest {}).await {
                    Ok(list) => return Ok(list.into_inner().pod_resources),
                    Err(status) if status.code() == Code::ResourceExhausted => {
                        time::sleep(RETRY_PAUSE).await;
                    }
                    Err(status) => return Err(status),
                }
            }
        };
        let listed = time::timeout(DEADLINE, calls).await;
        let error = match listed {
            Ok(Ok(pods)) => return Ok(pods),
            Ok(Err(status)) => status.message().to_owned(),
            Err(_) => format!("no answer within {DEADLINE:?}"),
        };
        let socket = self.socket.display();
        Err(Status::unavailable(format!(
            "the kubelet does not list its pods' devices at {socket}: {error}"
        )))
    }
}

/// Returns a channel to a socket, which connects when it is first used.
pub(crate) fn channel(socket: PathBuf) -> Channel {
    let connector = service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost")
        .connect_timeout(DEADLINE)
        .connect_with_connector_lazy(connector)
}
