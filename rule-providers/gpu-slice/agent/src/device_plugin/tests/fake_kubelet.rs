//! A kubelet that registers plugins, allocates IDs and starts containers, without containers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{
    Request, Response, Status,
    transport::{Channel, Server},
};

use crate::{
    device_plugin::checkpoint::{Entry, tests::render},
    kubelet::{
        channel,
        device_plugin::{
            AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse, Device, Empty,
            PreStartContainerRequest, RegisterRequest,
            device_plugin_client::DevicePluginClient,
            registration_server::{Registration, RegistrationServer},
        },
        pod_resources::{
            ContainerDevices, ContainerResources, ListPodResourcesRequest,
            ListPodResourcesResponse, PodResources,
            pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer},
        },
    },
};

/// What the kubelet knows of a resource.
#[derive(Clone)]
pub(crate) struct Plugin {
    pub client: DevicePluginClient<Channel>,
    pub pre_start: bool,
    /// The newest list; `None`: the stream ended.
    pub devices: Option<Vec<Device>>,
}

impl Plugin {
    pub fn count(&self, health: &str) -> Option<usize> {
        let devices = self.devices.as_ref()?;
        Some(devices.iter().filter(|d| d.health == health).count())
    }
}

#[derive(Clone, Default)]
struct Allocation {
    pod: String,
    container: String,
    init: bool,
    resource: String,
    ids: Vec<String>,
    answer: ContainerAllocateResponse,
}

#[derive(Default)]
pub(crate) struct State {
    pub plugins: BTreeMap<String, Plugin>,
    allocations: Vec<Allocation>,
}

/// A running kubelet; stops when dropped. Its state outlives it, as the checkpoint does.
pub(crate) struct FakeKubelet {
    dir: PathBuf,
    pub state: Arc<Mutex<State>>,
    _stop: DropGuard,
}

#[derive(Clone)]
struct Handler {
    plugins: PathBuf,
    state: Arc<Mutex<State>>,
    lists: Arc<AtomicU64>,
    stop: CancellationToken,
}

impl FakeKubelet {
    pub fn start(dir: &Path, state: Arc<Mutex<State>>) -> Self {
        let plugins = dir.join("device-plugins");
        fs::create_dir_all(&plugins).unwrap();
        fs::create_dir_all(dir.join("pod-resources")).unwrap();
        for file in fs::read_dir(&plugins).unwrap().flatten() {
            if file.path().extension().is_some_and(|e| e == "sock") {
                fs::remove_file(file.path()).unwrap();
            }
        }
        let resources = dir.join("pod-resources/kubelet.sock");
        _ = fs::remove_file(&resources);
        state.lock().plugins.clear();

        let stop = CancellationToken::new();
        let handler = Handler {
            plugins: plugins.clone(),
            state: Arc::clone(&state),
            lists: Arc::default(),
            stop: stop.clone(),
        };
        let bind = |path: &Path| UnixListenerStream::new(UnixListener::bind(path).unwrap());
        let registry = Server::builder()
            .add_service(RegistrationServer::new(handler.clone()))
            .serve_with_incoming_shutdown(
                bind(&plugins.join("kubelet.sock")),
                stop.clone().cancelled_owned(),
            );
        tokio::spawn(registry);
        let lister = Server::builder()
            .add_service(PodResourcesListerServer::new(handler))
            .serve_with_incoming_shutdown(bind(&resources), stop.clone().cancelled_owned());
        tokio::spawn(lister);
        Self {
            dir: dir.to_owned(),
            state,
            _stop: stop.drop_guard(),
        }
    }

    pub fn plugin(&self, resource: &str) -> Option<Plugin> {
        self.state.lock().plugins.get(resource).cloned()
    }

    /// Admits a container, which reuses the IDs of its pod's init containers.
    pub async fn admit(&self, pod: &str, container: &str, init: bool, wants: &[(&str, usize)]) {
        for (resource, count) in wants {
            let mut plugin = self.plugin(resource).unwrap();
            let (mut reusable, mut taken) = (BTreeSet::new(), BTreeSet::new());
            for allocation in &self.state.lock().allocations {
                let own = allocation.pod == pod && allocation.init;
                let into = if own { &mut reusable } else { &mut taken };
                into.extend(allocation.ids.iter().cloned());
            }
            let devices = plugin.devices.iter().flatten();
            let free = devices
                .filter(|d| d.health == "Healthy")
                .map(|d| d.id.clone());
            let fresh: Vec<String> = free
                .filter(|id| !taken.contains(id) && !reusable.contains(id))
                .collect();
            let ids: Vec<String> = reusable.into_iter().chain(fresh).take(*count).collect();
            assert_eq!(ids.len(), *count, "{resource} is short");
            let request = ContainerAllocateRequest {
                device_ids: ids.clone(),
            };
            let request = AllocateRequest {
                container_requests: vec![request],
            };
            let answer = plugin.client.allocate(request).await.unwrap().into_inner();
            self.state.lock().allocations.push(Allocation {
                pod: pod.to_owned(),
                container: container.to_owned(),
                init,
                resource: (*resource).to_owned(),
                ids,
                answer: answer.container_responses[0].clone(),
            });
        }
        self.checkpoint();
    }

    /// Starts a container; the answers of Allocate by resource are what the runtime gets.
    pub async fn start_container(
        &self,
        pod: &str,
        container: &str,
    ) -> Result<BTreeMap<String, ContainerAllocateResponse>, Status> {
        let own = |a: &&Allocation| a.pod == pod && a.container == container;
        let allocations: Vec<Allocation> = {
            let state = self.state.lock();
            state.allocations.iter().filter(own).cloned().collect()
        };
        let mut answers = BTreeMap::new();
        for allocation in allocations {
            let mut plugin = self.plugin(&allocation.resource).unwrap();
            let request = PreStartContainerRequest {
                device_ids: allocation.ids.into_iter().rev().collect(),
            };
            plugin.client.pre_start_container(request).await?;
            answers.insert(allocation.resource, allocation.answer);
        }
        Ok(answers)
    }

    /// Ends a pod: its IDs are free.
    pub fn end(&self, pod: &str) {
        self.state.lock().allocations.retain(|a| a.pod != pod);
        self.checkpoint();
    }

    pub fn held(&self, resource: &str) -> BTreeSet<String> {
        let state = self.state.lock();
        let of = state.allocations.iter().filter(|a| a.resource == resource);
        of.flat_map(|a| a.ids.iter().cloned()).collect()
    }

    fn checkpoint(&self) {
        let state = self.state.lock();
        let entry = |a: &Allocation| Entry {
            pod_uid: format!("uid-{}", a.pod),
            container: a.container.clone(),
            resource: a.resource.clone(),
            ids: a.ids.clone(),
        };
        let entries: Vec<Entry> = state.allocations.iter().map(entry).collect();
        let plugins = self.dir.join("device-plugins");
        fs::write(plugins.join("new"), render(&entries)).unwrap();
        fs::rename(
            plugins.join("new"),
            plugins.join("kubelet_internal_checkpoint"),
        )
        .unwrap();
    }
}

#[tonic::async_trait]
impl Registration for Handler {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        assert_eq!(request.version, "v1beta1");
        let socket = self.plugins.join(&request.endpoint);
        let mut client =
            DevicePluginClient::new(channel(socket)).max_decoding_message_size(4 << 20);
        let options = client
            .get_device_plugin_options(Empty {})
            .await?
            .into_inner();
        let plugin = Plugin {
            client: client.clone(),
            pre_start: options.pre_start_required,
            devices: None,
        };
        let resource = request.resource_name;
        self.state.lock().plugins.insert(resource.clone(), plugin);
        let (state, stop) = (Arc::clone(&self.state), self.stop.clone());
        tokio::spawn(async move {
            let put = |devices| {
                if let Some(plugin) = state.lock().plugins.get_mut(&resource) {
                    plugin.devices = devices;
                }
            };
            let list = async {
                let mut lists = client.list_and_watch(Empty {}).await?.into_inner();
                while let Some(list) = lists.message().await? {
                    put(Some(list.devices));
                }
                Ok::<_, Status>(())
            };
            tokio::select! {
                _ = list => put(None),
                () = stop.cancelled() => {}
            }
        });
        Ok(Response::new(Empty {}))
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Handler {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        if self.lists.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
            return Err(Status::resource_exhausted("rejected by rate limit"));
        }
        let mut pods: BTreeMap<String, BTreeMap<String, Vec<ContainerDevices>>> = BTreeMap::new();
        for allocation in &self.state.lock().allocations {
            if allocation.init {
                continue;
            }
            let pod = pods.entry(allocation.pod.clone()).or_default();
            let devices = pod.entry(allocation.container.clone()).or_default();
            devices.extend(allocation.ids.iter().map(|id| ContainerDevices {
                resource_name: allocation.resource.clone(),
                device_ids: vec![id.clone()],
            }));
        }
        let containers = |containers: BTreeMap<String, Vec<ContainerDevices>>| {
            let containers = containers.into_iter();
            containers
                .map(|(name, devices)| ContainerResources { name, devices })
                .collect()
        };
        let pods = pods.into_iter().map(|(name, of)| PodResources {
            name,
            namespace: "ml".to_owned(),
            containers: containers(of),
        });
        Ok(Response::new(ListPodResourcesResponse {
            pod_resources: pods.collect(),
        }))
    }
}
