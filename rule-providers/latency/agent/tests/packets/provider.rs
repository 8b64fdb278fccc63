//! A provider that only listens and passes orders on.

use std::{collections::BTreeMap, net::SocketAddr, pin::Pin, sync::Arc, time::Instant};

use parking_lot::Mutex;
use tautline_proto::latency::{
    FromAgent, Hello, Pair, Probed, State, ToAgent, Transferred,
    agents_server::{Agents, AgentsServer},
    from_agent::What as Said,
    to_agent::What as Order,
};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tokio_util::sync::CancellationToken;
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Server, server::TcpIncoming},
};

/// The messages of one agent.
#[derive(Debug, Default)]
pub struct Heard {
    pub hello: Option<Hello>,
    /// The header `authorization` of the last stream.
    pub authorization: Option<String>,
    /// Streams that were opened.
    pub opened: u32,
    /// And that were ended by the agent.
    pub left: u32,
    pub reports: u32,
    /// The pairs of the first report of the last stream.
    pub first: Vec<Pair>,
    pub pairs: BTreeMap<String, Pair>,
    /// When each pair's state last changed.
    pub turned: BTreeMap<String, (State, Instant)>,
    pub probed: BTreeMap<u64, Probed>,
    pub transferred: BTreeMap<u64, Transferred>,
    orders: Option<mpsc::Sender<Result<ToAgent, Status>>>,
}

#[derive(Clone, Default)]
pub struct Provider(Arc<Mutex<BTreeMap<String, Heard>>>);

impl Provider {
    /// Serves on a free port of loopback until stopped.
    pub async fn start(stop: CancellationToken) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Self::serve(listener, stop), address)
    }

    pub fn serve(listener: TcpListener, stop: CancellationToken) -> Self {
        Self::serve_by(Server::builder(), listener, stop)
    }

    /// With TLS, say.
    pub fn serve_by(mut server: Server, listener: TcpListener, stop: CancellationToken) -> Self {
        let provider = Self::default();
        let service = AgentsServer::new(provider.clone());
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let server = server.add_service(service);
        tokio::spawn(async move {
            let serving = server.serve_with_incoming(incoming);
            _ = stop.run_until_cancelled(serving).await;
        });
        provider
    }

    /// Ends the stream of an agent.
    pub fn hang_up(&self, node: &str) {
        self.0.lock().entry(node.to_owned()).or_default().orders = None;
    }

    pub fn heard<T>(&self, node: &str, look: impl FnOnce(&Heard) -> T) -> T {
        look(self.0.lock().entry(node.to_owned()).or_default())
    }

    pub fn pair(&self, node: &str, target: &str) -> Option<Pair> {
        self.heard(node, |heard| heard.pairs.get(target).cloned())
    }

    pub async fn order(&self, node: &str, what: Order) {
        let orders = self.heard(node, |heard| heard.orders.clone());
        let order = ToAgent { what: Some(what) };
        orders.unwrap().send(Ok(order)).await.unwrap();
    }

    pub fn state(&self) -> String {
        format!("{:#?}", self.0.lock())
    }

    fn note(&self, node: &str, inbound: Said) {
        let mut all = self.0.lock();
        let heard = all.entry(node.to_owned()).or_default();
        match inbound {
            Said::Hello(_) => {}
            Said::Report(report) => {
                heard.reports += 1;
                if heard.reports == 1 {
                    heard.first = report.pairs.clone();
                }
                for pair in report.pairs {
                    let state = pair.state();
                    let turned = heard.turned.entry(pair.node.clone());
                    let turned = turned.or_insert((state, Instant::now()));
                    if turned.0 != state {
                        *turned = (state, Instant::now());
                    }
                    heard.pairs.insert(pair.node.clone(), pair);
                }
            }
            Said::Probed(probed) => _ = heard.probed.insert(probed.id, probed),
            Said::Transferred(done) => _ = heard.transferred.insert(done.id, done),
        }
    }
}

#[tonic::async_trait]
impl Agents for Provider {
    type FollowStream = Pin<Box<dyn Stream<Item = Result<ToAgent, Status>> + Send>>;

    async fn follow(
        &self,
        request: Request<Streaming<FromAgent>>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let authorization = request.metadata().get("authorization");
        let authorization = authorization
            .and_then(|a| a.to_str().ok())
            .map(str::to_owned);
        let mut inbound = request.into_inner();
        let Some(Said::Hello(hello)) = inbound.message().await?.and_then(|m| m.what) else {
            return Err(Status::invalid_argument("no hello"));
        };
        let (orders, outgoing) = mpsc::channel(16);
        let node = hello.node.clone();
        {
            let mut all = self.0.lock();
            let heard = all.entry(node.clone()).or_default();
            heard.hello = Some(hello);
            heard.orders = Some(orders);
            heard.authorization = authorization;
            heard.reports = 0;
            heard.opened += 1;
        }
        let provider = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(message)) = inbound.message().await {
                if let Some(what) = message.what {
                    provider.note(&node, what);
                }
            }
            provider.0.lock().entry(node).or_default().left += 1;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(outgoing))))
    }
}
