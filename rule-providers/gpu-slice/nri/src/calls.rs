//! The runtime's calls: what each says and how it is answered.

use std::{sync::Arc, time::Duration};

use prost::Message;
use tokio::time::Instant;

use crate::{
    messages::{
        ConfigureRequest, ConfigureResponse, Container, ContainerRequest, CreateContainerResponse,
        Event, FailurePolicy, PodSandbox, PodSandboxRequest, StateChangeEvent, SynchronizeRequest,
        SynchronizeResponse,
    },
    plugin::{Plugin, Request},
    ttrpc::{self, Response, code},
};

pub(crate) const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
/// Of runtimes that do not tell theirs.
const TIMEOUT: Duration = Duration::from_secs(2);
const MOST: usize = 100_000;

const EVENTS: [Event; 5] = [
    Event::CreateContainer,
    Event::StopContainer,
    Event::RemoveContainer,
    Event::StopPodSandbox,
    Event::RemovePodSandbox,
];

/// An answer, at once or after the plugin's work.
#[derive(Debug)]
pub(crate) enum Answer {
    Now(Response),
    Create(Box<Request>),
}

/// The state of one connection's calls.
#[derive(Debug)]
pub(crate) struct Calls<P> {
    plugin: Arc<P>,
    timeout: Duration,
    pods: Vec<PodSandbox>,
    containers: Vec<Container>,
    /// The runtime has told all its containers; from then on it calls for new ones.
    pub(crate) synchronized: bool,
}

impl<P: Plugin> Calls<P> {
    pub(crate) fn new(plugin: Arc<P>) -> Self {
        Self {
            plugin,
            timeout: TIMEOUT,
            pods: Vec::new(),
            containers: Vec::new(),
            synchronized: false,
        }
    }

    pub(crate) fn call(&mut self, request: &ttrpc::Request, now: Instant) -> Answer {
        if request.service != PLUGIN_SERVICE {
            let text = format!("there is no service {:?}", request.service);
            return Answer::Now(Response::error(code::UNIMPLEMENTED, text));
        }
        self.answer(request, now)
            .unwrap_or_else(|error| Answer::Now(Response::error(code::INVALID_ARGUMENT, error)))
    }

    fn answer(&mut self, request: &ttrpc::Request, now: Instant) -> Result<Answer, String> {
        let body = &request.payload[..];
        let payload = match request.method.as_str() {
            "Configure" => self.configure(&read(body)?).encode_to_vec(),
            "Synchronize" => self.synchronize(read(body)?)?.encode_to_vec(),
            "CreateContainer" => {
                let ContainerRequest { pod, container } = read(body)?;
                return Ok(Answer::Create(Box::new(Request {
                    pod: pod.unwrap_or_default(),
                    container: container.unwrap_or_default(),
                    deadline: now + self.time(request.timeout_nano),
                })));
            }
            "StopContainer" | "RemoveContainer" => {
                let ContainerRequest { pod, container } = read(body)?;
                self.container_ended(pod, container);
                Vec::new()
            }
            "StopPodSandbox" | "RemovePodSandbox" => {
                let PodSandboxRequest { pod } = read(body)?;
                self.pod_ended(pod);
                Vec::new()
            }
            "StateChange" => {
                let change: StateChangeEvent = read(body)?;
                match change.event() {
                    Event::StopContainer | Event::RemoveContainer => {
                        self.container_ended(change.pod, change.container);
                    }
                    Event::StopPodSandbox | Event::RemovePodSandbox => self.pod_ended(change.pod),
                    Event::Unknown | Event::CreateContainer => {}
                }
                Vec::new()
            }
            // Their answers are empty messages, and so is the answer to what is not subscribed.
            _ => Vec::new(),
        };
        Ok(Answer::Now(Response::ok(payload)))
    }

    fn configure(&mut self, request: &ConfigureRequest) -> ConfigureResponse {
        if let Ok(milliseconds @ 1..) = u64::try_from(request.request_timeout) {
            self.timeout = Duration::from_millis(milliseconds);
        }
        let (name, version) = (&request.runtime_name, &request.runtime_version);
        self.plugin.configured(name, version, self.timeout);
        ConfigureResponse {
            events: EVENTS.iter().fold(0, |mask, e| mask | 1 << (*e as i32 - 1)),
            failure_policy: Some(FailurePolicy { fail_request: true }),
        }
    }

    fn synchronize(&mut self, part: SynchronizeRequest) -> Result<SynchronizeResponse, String> {
        if self.pods.len() + self.containers.len() > MOST {
            return Err(format!("more than {MOST} pods and containers"));
        }
        self.pods.extend(part.pods);
        self.containers.extend(part.containers);
        if !part.more {
            let pods = std::mem::take(&mut self.pods);
            let containers = std::mem::take(&mut self.containers);
            self.plugin.synchronize(pods, containers);
            self.synchronized = true;
        }
        Ok(SynchronizeResponse { more: part.more })
    }

    fn container_ended(&self, pod: Option<PodSandbox>, container: Option<Container>) {
        if let Some(container) = container {
            self.plugin
                .container_ended(pod.unwrap_or_default(), container);
        }
    }

    fn pod_ended(&self, pod: Option<PodSandbox>) {
        if let Some(pod) = pod {
            self.plugin.pod_ended(pod);
        }
    }

    /// Time for an answer: three quarters of the runtime's, as it drops a plugin that is late.
    fn time(&self, timeout_nano: i64) -> Duration {
        let told = match u64::try_from(timeout_nano) {
            Ok(nanos @ 1..) => Duration::from_nanos(nanos).min(self.timeout),
            _ => self.timeout,
        };
        told * 3 / 4
    }
}

/// The answer to a call for a new container.
pub(crate) async fn create<P: Plugin>(plugin: Arc<P>, request: Request) -> Response {
    let deadline = request.deadline;
    let answer = tokio::time::timeout_at(deadline, plugin.create_container(request)).await;
    match answer {
        Ok(Ok(adjust)) => {
            let adjust = Some(adjust);
            Response::ok(CreateContainerResponse { adjust }.encode_to_vec())
        }
        Ok(Err(text)) => Response::error(code::UNKNOWN, text),
        Err(_) => Response::error(code::DEADLINE_EXCEEDED, "the plugin did not answer in time"),
    }
}

fn read<M: Message + Default>(body: &[u8]) -> Result<M, String> {
    M::decode(body).map_err(|e| e.to_string())
}
