//! A provider that forwards all calls to another, and runs a function between a granted Reserve
//! and its answer: an event between reserve and bind.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
};

use tautline_proto::{
    allocator::{
        ConfirmRequest, ConfirmResponse, ReleaseRequest, ReleaseResponse, ReserveRequest,
        ReserveResponse,
        allocator_client::AllocatorClient,
        allocator_server::{Allocator, AllocatorServer},
    },
    ruleprovider::{
        CostUpdate, CostWatch, EndpointCostRequest, EndpointCostResponse, EvaluateRequest,
        EvaluateResponse,
        rule_provider_client::RuleProviderClient,
        rule_provider_server::{RuleProvider, RuleProviderServer},
    },
};
use tokio::task::JoinHandle;
use tokio_stream::{StreamExt, wrappers::TcpListenerStream};
use tonic::{Request, Response, Status, Streaming, transport::Channel};

type Happens = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

pub struct Interceptor {
    pub port: u16,
    calls: Calls,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
}

#[derive(Clone)]
struct Calls {
    to: Channel,
    next: Arc<Mutex<Option<(String, Happens)>>>,
    /// The pod whose answers are lost.
    lost_for: Arc<Mutex<Option<String>>>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Interceptor {
    /// In front of the provider on that port.
    pub async fn start(provider: u16) -> Self {
        let to: SocketAddr = ([127, 0, 0, 1], provider).into();
        let calls = Calls {
            to: Channel::from_shared(format!("http://{to}"))
                .unwrap()
                .connect_lazy(),
            next: Arc::default(),
            lost_for: Arc::default(),
            log: Arc::default(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = tonic::transport::Server::builder()
            .add_service(RuleProviderServer::new(calls.clone()))
            .add_service(AllocatorServer::new(calls.clone()));
        let server = tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
        Self {
            port,
            calls,
            server,
        }
    }

    /// Runs `what` once, when the next Reserve for this pod is granted.
    pub fn on_reserve<F>(&self, pod: &str, what: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let what: Happens = Box::new(|| Box::pin(what()));
        *self.calls.next.lock().unwrap() = Some((pod.to_owned(), what));
    }

    /// Loses all further answers for this pod.
    pub fn lose_answers(&self, pod: &str) {
        *self.calls.lost_for.lock().unwrap() = Some(pod.to_owned());
    }

    /// True if that function has run.
    pub fn has_run(&self) -> bool {
        self.calls.next.lock().unwrap().is_none()
    }

    /// The calls and their results, for a failed test.
    pub fn call_log(&self) -> String {
        self.calls.log.lock().unwrap().join("\n")
    }
}

impl Drop for Interceptor {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Calls {
    fn record(&self, line: String) {
        self.log.lock().unwrap().push(line);
    }

    fn allocator(&self) -> AllocatorClient<Channel> {
        AllocatorClient::new(self.to.clone())
    }

    fn rules(&self) -> RuleProviderClient<Channel> {
        RuleProviderClient::new(self.to.clone())
    }
}

#[tonic::async_trait]
impl RuleProvider for Calls {
    type WatchCostsStream = Streaming<CostUpdate>;

    async fn watch_costs(
        &self,
        request: Request<Streaming<CostWatch>>,
    ) -> Result<Response<Self::WatchCostsStream>, Status> {
        let messages = request.into_inner().filter_map(Result::ok);
        self.rules().watch_costs(messages).await
    }

    async fn endpoint_cost(
        &self,
        request: Request<EndpointCostRequest>,
    ) -> Result<Response<EndpointCostResponse>, Status> {
        self.rules().endpoint_cost(request.into_inner()).await
    }

    async fn evaluate(
        &self,
        request: Request<EvaluateRequest>,
    ) -> Result<Response<EvaluateResponse>, Status> {
        self.rules().evaluate(request.into_inner()).await
    }
}

#[tonic::async_trait]
impl Allocator for Calls {
    async fn reserve(
        &self,
        request: Request<ReserveRequest>,
    ) -> Result<Response<ReserveResponse>, Status> {
        let request = request.into_inner();
        let pod = request.workload.clone().unwrap_or_default().name;
        let answer = self.allocator().reserve(request).await;
        let outcome = match &answer {
            Ok(granted) => format!("{:?}", granted.get_ref().annotations),
            Err(status) => format!("{:?} {}", status.code(), status.message()),
        };
        self.record(format!("reserve {pod}: {outcome}"));
        let answer = answer?;
        let what = self
            .next
            .lock()
            .unwrap()
            .take_if(|(of, _)| *of == pod)
            .map(|(_, what)| what);
        if let Some(what) = what {
            what().await;
        }
        if self.lost_for.lock().unwrap().as_ref() == Some(&pod) {
            return Err(Status::unavailable("the answer is lost"));
        }
        Ok(answer)
    }

    async fn confirm(
        &self,
        request: Request<ConfirmRequest>,
    ) -> Result<Response<ConfirmResponse>, Status> {
        self.record("confirm".into());
        self.allocator().confirm(request.into_inner()).await
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        self.record("release".into());
        self.allocator().release(request.into_inner()).await
    }
}
