//! The client against a fake runtime.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::Notify,
    task::JoinHandle,
};

use crate::{
    calls::PLUGIN_SERVICE,
    error::Error,
    messages::{
        ConfigureRequest, ConfigureResponse, Container, ContainerAdjustment, ContainerRequest,
        CreateContainerResponse, KeyValue, PodSandbox, PodSandboxRequest, RegisterPluginRequest,
        StateChangeEvent, SynchronizeRequest, SynchronizeResponse,
    },
    mux::{self, Demux},
    plugin::{Identity, Plugin, Request},
    serve::serve,
    ttrpc::{self, Decoder, REQUEST, RESPONSE, Raw, Response},
};

const SOON: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Recorder {
    seen: Mutex<Vec<String>>,
    go: Notify,
}

impl Recorder {
    fn see(&self, text: String) {
        self.seen.lock().unwrap().push(text);
    }
}

impl Plugin for Recorder {
    fn configured(&self, runtime: &str, version: &str, timeout: Duration) {
        self.see(format!("configured {runtime} {version} {timeout:?}"));
    }

    fn synchronize(&self, pods: Vec<PodSandbox>, containers: Vec<Container>) {
        self.see(format!("synchronized {} {}", pods.len(), containers.len()));
    }

    async fn create_container(&self, request: Request) -> Result<ContainerAdjustment, String> {
        match request.container.name.as_str() {
            "slow" => self.go.notified().await,
            "stuck" => std::future::pending().await,
            "refused" => return Err("no card".to_owned()),
            "panics" => panic!("on purpose"),
            _ => {}
        }
        let value = "v".repeat(10_000);
        let key = request.container.name;
        Ok(ContainerAdjustment {
            env: vec![KeyValue { key, value }],
            ..ContainerAdjustment::default()
        })
    }

    fn container_ended(&self, pod: PodSandbox, container: Container) {
        self.see(format!("ended {} {}", pod.uid, container.id));
    }

    fn pod_ended(&self, pod: PodSandbox) {
        self.see(format!("pod ended {}", pod.uid));
    }
}

struct Runtime {
    stream: UnixStream,
    demux: Demux,
    decoders: BTreeMap<u32, Decoder>,
    next_stream: u32,
    answers: BTreeMap<u32, Response>,
}

impl Runtime {
    fn start() -> (Self, Arc<Recorder>, JoinHandle<Error>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let plugin = Arc::new(Recorder::default());
        let served = Arc::clone(&plugin);
        let task = tokio::spawn(async move {
            let identity = Identity {
                name: "test",
                index: "10",
            };
            serve(theirs, &identity, served).await.unwrap_err()
        });
        let runtime = Self {
            stream: ours,
            demux: Demux::default(),
            decoders: BTreeMap::new(),
            next_stream: 1,
            answers: BTreeMap::new(),
        };
        (runtime, plugin, task)
    }

    /// A runtime whose plugin is registered, configured and synchronized.
    async fn ready() -> (Self, Arc<Recorder>, JoinHandle<Error>) {
        let (mut runtime, plugin, task) = Self::start();
        runtime.accept().await;
        let configure = ConfigureRequest {
            runtime_name: "fake".into(),
            runtime_version: "2".into(),
            request_timeout: 60_000,
        };
        let _: ConfigureResponse = runtime.call("Configure", &configure).await.unwrap();
        let sync = SynchronizeRequest::default();
        let _: SynchronizeResponse = runtime.call("Synchronize", &sync).await.unwrap();
        (runtime, plugin, task)
    }

    async fn receive(&mut self) -> (u32, Raw) {
        let work = async {
            let mut buffer = [0; 700];
            loop {
                let length = self.stream.read(&mut buffer).await.unwrap();
                assert!(length > 0, "the plugin closed the connection");
                let mut bytes = &buffer[..length];
                let mut found = None;
                while let Some((id, part)) = self.demux.next(&mut bytes).unwrap() {
                    let decoder = self.decoders.entry(id).or_default();
                    decoder.feed(part);
                    while let Some(raw) = decoder.next().unwrap() {
                        if raw.kind == RESPONSE {
                            let answer = Response::decode(&raw.body[..]).unwrap();
                            self.answers.insert(raw.stream, answer);
                        }
                        found = Some((id, raw));
                    }
                }
                if let Some(found) = found {
                    return found;
                }
            }
        };
        tokio::time::timeout(SOON, work).await.unwrap()
    }

    async fn accept(&mut self) -> RegisterPluginRequest {
        let (id, raw) = self.receive().await;
        assert_eq!((id, raw.kind), (mux::RUNTIME, REQUEST));
        let request = ttrpc::Request::decode(&raw.body[..]).unwrap();
        assert_eq!(request.service, "nri.pkg.api.v1alpha1.Runtime");
        assert_eq!(request.method, "RegisterPlugin");
        let answer = ttrpc::encode(raw.stream, RESPONSE, &Response::ok(Vec::new()));
        self.write(&mux::frames(mux::RUNTIME, &answer)).await;
        RegisterPluginRequest::decode(&request.payload[..]).unwrap()
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn send(&mut self, method: &str, body: &impl Message, timeout: Duration) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        let request = ttrpc::Request {
            service: PLUGIN_SERVICE.into(),
            method: method.into(),
            payload: body.encode_to_vec(),
            timeout_nano: timeout.as_nanos() as i64,
        };
        let message = ttrpc::encode(stream, REQUEST, &request);
        self.write(&mux::frames(mux::PLUGIN, &message)).await;
        stream
    }

    async fn answer(&mut self, stream: u32) -> Response {
        while !self.answers.contains_key(&stream) {
            self.receive().await;
        }
        self.answers.remove(&stream).unwrap()
    }

    async fn call<M: Message + Default>(
        &mut self,
        method: &str,
        body: &impl Message,
    ) -> Result<M, String> {
        let stream = self.send(method, body, SOON).await;
        let answer = self.answer(stream).await;
        match answer.status {
            Some(status) if status.code != 0 => Err(status.message),
            _ => Ok(M::decode(&answer.payload[..]).unwrap()),
        }
    }

    async fn create(&mut self, name: &str) -> Result<CreateContainerResponse, String> {
        self.call("CreateContainer", &container(name)).await
    }
}

fn container(name: &str) -> ContainerRequest {
    ContainerRequest {
        pod: Some(PodSandbox {
            uid: "u1".into(),
            ..PodSandbox::default()
        }),
        container: Some(Container {
            id: format!("id-{name}"),
            name: name.into(),
            ..Container::default()
        }),
    }
}

async fn ended(task: JoinHandle<Error>) -> String {
    let error = tokio::time::timeout(SOON, task).await.unwrap().unwrap();
    error.to_string()
}

#[tokio::test]
async fn the_plugin_registers_and_synchronizes_in_parts() {
    let (mut runtime, plugin, _task) = Runtime::start();
    let registered = runtime.accept().await;
    assert_eq!(registered.plugin_name, "test");
    assert_eq!(registered.plugin_idx, "10");

    let configure = ConfigureRequest {
        runtime_name: "fake".into(),
        runtime_version: "2".into(),
        request_timeout: 2000,
    };
    let configured: ConfigureResponse = runtime.call("Configure", &configure).await.unwrap();
    assert_eq!(configured.events, 0b110_0000_1110);
    assert!(configured.failure_policy.unwrap().fail_request);
    for more in [true, true, false] {
        let part = SynchronizeRequest {
            pods: vec![PodSandbox::default(); 2],
            containers: vec![Container::default(); 100],
            more,
        };
        let answer: SynchronizeResponse = runtime.call("Synchronize", &part).await.unwrap();
        assert_eq!(answer.more, more);
    }
    let seen = plugin.seen.lock().unwrap().clone();
    assert_eq!(seen, ["configured fake 2 2s", "synchronized 6 300"]);
}

#[tokio::test]
async fn adjustments_refusals_and_panics_are_answered() {
    let (mut runtime, _, _task) = Runtime::ready().await;
    let adjust = runtime.create("app").await.unwrap().adjust.unwrap();
    assert_eq!(adjust.env[0].key, "app");
    assert_eq!(adjust.env[0].value.len(), 10_000);
    assert_eq!(runtime.create("refused").await.unwrap_err(), "no card");
    let panicked = runtime.create("panics").await.unwrap_err();
    assert_eq!(panicked, "the plugin failed");
    runtime.create("app").await.unwrap();
}

#[tokio::test]
async fn a_slow_container_holds_up_no_other() {
    let (mut runtime, plugin, _task) = Runtime::ready().await;
    let slow = runtime
        .send("CreateContainer", &container("slow"), SOON)
        .await;
    for _ in 0..20 {
        runtime.create("app").await.unwrap();
    }
    assert!(!runtime.answers.contains_key(&slow));
    plugin.go.notify_one();
    assert!(runtime.answer(slow).await.status.is_none());
}

#[tokio::test]
async fn an_answer_comes_before_the_runtime_gives_up() {
    let (mut runtime, _, _task) = Runtime::ready().await;
    let timeout = Duration::from_millis(200);
    let stuck = runtime
        .send("CreateContainer", &container("stuck"), timeout)
        .await;
    let status = runtime.answer(stuck).await.status.unwrap();
    assert_eq!(status.message, "the plugin did not answer in time");
}

#[tokio::test]
async fn ends_are_told_by_calls_and_by_state_changes() {
    let (mut runtime, plugin, _task) = Runtime::ready().await;
    let stopped = container("a");
    let ContainerRequest { pod, container } = stopped.clone();
    let change = |event: i32| StateChangeEvent {
        event,
        pod: pod.clone(),
        container: container.clone(),
    };
    let pod_request = PodSandboxRequest { pod: pod.clone() };
    runtime.call::<()>("StopContainer", &stopped).await.unwrap();
    runtime
        .call::<()>("StateChange", &change(11))
        .await
        .unwrap();
    runtime.call::<()>("StateChange", &change(3)).await.unwrap();
    runtime
        .call::<()>("StateChange", &change(99))
        .await
        .unwrap();
    runtime
        .call::<()>("RemovePodSandbox", &pod_request)
        .await
        .unwrap();
    runtime
        .call::<()>("RunPodSandbox", &pod_request)
        .await
        .unwrap();
    let seen = plugin.seen.lock().unwrap()[2..].to_vec();
    assert_eq!(
        seen,
        [
            "ended u1 id-a",
            "ended u1 id-a",
            "pod ended u1",
            "pod ended u1"
        ]
    );
}

#[tokio::test]
async fn the_end_of_the_connection_is_an_error() {
    let (runtime, _, task) = Runtime::ready().await;
    drop(runtime);
    assert_eq!(ended(task).await, "the runtime closed the connection");
}

#[tokio::test]
async fn a_refusal_of_the_runtime_is_an_error() {
    let (mut runtime, _, task) = Runtime::start();
    let (_, raw) = runtime.receive().await;
    let answer = Response::error(2, "invalid plugin name");
    let answer = ttrpc::encode(raw.stream, RESPONSE, &answer);
    runtime.write(&mux::frames(mux::RUNTIME, &answer)).await;
    assert_eq!(
        ended(task).await,
        "the runtime refused the plugin: invalid plugin name"
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_runtime_is_an_error() {
    let (_runtime, _, task) = Runtime::start();
    let error = task.await.unwrap();
    assert!(matches!(error, Error::Silent(_)), "{error}");
}

#[tokio::test]
async fn garbage_and_reused_streams_end_the_connection() {
    let (mut runtime, _, task) = Runtime::ready().await;
    runtime.write(&[0xff; 64]).await;
    assert!(ended(task).await.contains("is not NRI"));

    let (mut runtime, _, task) = Runtime::ready().await;
    runtime.next_stream = 1;
    runtime.send("CreateContainer", &container("a"), SOON).await;
    assert!(ended(task).await.contains("stream 1 is out of order"));
}
