//! The gRPC service that the kubelet calls, one for each resource.

use std::{pin::Pin, sync::Arc};

use futures::{Stream, StreamExt, stream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::{ids::Counted, start::Starter};
use crate::kubelet::device_plugin::{
    AllocateRequest, AllocateResponse, Device, DevicePluginOptions, Empty, ListAndWatchResponse,
    PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse, device_plugin_server::DevicePlugin,
};

/// The optional calls of the kubelet: it makes only PreStartContainer.
pub(super) const OPTIONS: DevicePluginOptions = DevicePluginOptions {
    pre_start_required: true,
    get_preferred_allocation_available: false,
};

pub(super) struct Service {
    pub counted: Counted,
    pub devices: watch::Receiver<Arc<Vec<Device>>>,
    pub starter: Arc<Starter>,
    /// Each open ListAndWatch stream holds a clone, and so counts.
    pub streams: Arc<()>,
    pub stop: CancellationToken,
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
