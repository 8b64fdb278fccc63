//! Serves WatchCosts: asks the provider for the costs of open questions whenever they change, and
//! sends them.

mod questions;

use std::{
    collections::{HashMap, HashSet},
    future::poll_fn,
    mem,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::{Duration, Instant},
};

use prost::Message;
use tautline_proto::ruleprovider as wire;
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming, codegen::BoxFuture, server::StreamingService};

use self::questions::{Pods, Questions};
use crate::{
    CostAnswer, CostRequest, RuleProvider,
    service::{RuleService, caught},
};

/// The maximum number of streams at once.
const MAX_STREAMS: usize = 16;
/// The maximum number of streams of one address, so that a stranger leaves some to the extenders.
const MAX_OF_ADDRESS: usize = 8;
/// The time between two signs of life.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// The deadline that a provider receives: the costs of other questions wait.
const DEADLINE: Duration = Duration::from_millis(200);
/// The time after which a question counts as failed. Callers give up a silent stream after 2 s.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1500);
/// The size at which a message is sent, in bytes.
const FULL_BYTES: usize = 1 << 20;
/// The maximum number of messages that are read before the next answer.
const MAX_READ: usize = 256;
/// The time after a broken stream in which its pods still count, since their Bindings may be in
/// progress.
const BINDING_GRACE: Duration = Duration::from_secs(2);

/// The streams of a server.
#[derive(Clone, Debug)]
pub(crate) struct CostStreams {
    open: Arc<Mutex<HashMap<Option<IpAddr>, usize>>>,
    placed: Arc<Mutex<Placed>>,
    stop: CancellationToken,
}

/// The stream that has placed each pod, by UID.
#[derive(Debug, Default)]
struct Placed {
    streams: u64,
    by: HashMap<String, u64>,
}

impl CostStreams {
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self {
            open: Arc::default(),
            placed: Arc::default(),
            stop,
        }
    }

    fn placed(&self) -> MutexGuard<'_, Placed> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Option<IpAddr>, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a stream of an address within the bounds.
    fn admit(&self, address: Option<IpAddr>) -> Result<Permit, Status> {
        let mut open = self.open();
        let all: usize = open.values().sum();
        let of_address = open.get(&address).copied().unwrap_or_default();
        if all >= MAX_STREAMS || of_address >= MAX_OF_ADDRESS {
            let what = format!(
                "too many streams of WatchCosts: {MAX_STREAMS}, and {MAX_OF_ADDRESS} of one address"
            );
            return Err(Status::resource_exhausted(what));
        }
        open.insert(address, of_address + 1);
        let streams = self.clone();
        Ok(Permit { streams, address })
    }
}

/// An open stream of an address.
struct Permit {
    streams: CostStreams,
    address: Option<IpAddr>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = self.streams.open();
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
        }
        open.retain(|_, count| *count > 0);
    }
}

pub(crate) struct WatchCosts<P>(pub(crate) RuleService<P>);

impl<P: RuleProvider> StreamingService<wire::CostWatch> for WatchCosts<P> {
    type Response = wire::CostUpdate;
    type ResponseStream = ReceiverStream<Result<wire::CostUpdate, Status>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<wire::CostWatch>>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move {
            if service.provider.changes().is_none() {
                return Err(Status::unimplemented(
                    "this provider is asked by EndpointCost",
                ));
            }
            service.gate.ready()?;
            let address = request.remote_addr().map(|address| address.ip());
            let permit = service.streams.admit(address)?;
            let (out, updates) = mpsc::channel(1);
            let stream = CostStream::new(service, out);
            tokio::spawn(stream.run(request.into_inner(), permit));
            Ok(Response::new(ReceiverStream::new(updates)))
        })
    }
}

struct CostStream<P> {
    service: RuleService<P>,
    out: mpsc::Sender<Result<wire::CostUpdate, Status>>,
    questions: Questions,
    /// The number that identifies the stream.
    number: u64,
    /// The UIDs of pods that the stream has placed.
    pods: HashSet<String>,
    sent_through: u64,
    last_sent: Instant,
}

impl<P: RuleProvider> CostStream<P> {
    fn new(service: RuleService<P>, out: mpsc::Sender<Result<wire::CostUpdate, Status>>) -> Self {
        let number = {
            let mut placed = service.streams.placed();
            placed.streams += 1;
            placed.streams
        };
        Self {
            service,
            out,
            questions: Questions::default(),
            number,
            pods: HashSet::new(),
            sent_through: 0,
            last_sent: Instant::now(),
        }
    }

    async fn run(mut self, messages: Streaming<wire::CostWatch>, permit: Permit) {
        if let Err(status) = self.follow(messages).await {
            _ = timeout(BEAT_INTERVAL, self.out.send(Err(status))).await;
        }
        drop(permit);
        if self.pods.is_empty() {
            return;
        }
        sleep(BINDING_GRACE).await;
        for uid in mem::take(&mut self.pods) {
            _ = self.end(&uid).await;
        }
    }

    /// Handles the caller's messages and sends costs; ends without an error when the caller has
    /// gone.
    async fn follow(&mut self, mut messages: Streaming<wire::CostWatch>) -> Result<(), Status> {
        let Some(changes) = self.service.provider.changes().cloned() else {
            return Ok(());
        };
        let (mut notice, mut mark) = (changes.subscribe(), 0);
        _ = changes.since(&mut mark);
        let mut beats = interval(BEAT_INTERVAL);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stop = self.service.streams.stop.clone();
        loop {
            let mut is_beat = false;
            tokio::select! {
                biased;
                () = stop.cancelled() => return Err(Status::unavailable("the provider stops")),
                message = messages.message() => match message? {
                    Some(message) => self.apply(message).await?,
                    None => return Ok(()),
                },
                _ = notice.changed() => {}
                _ = beats.tick() => {
                    is_beat = true;
                    self.questions.retry();
                }
                () = self.out.closed() => return Ok(()),
            }
            for _ in 0..MAX_READ {
                match next_if_ready(&mut messages).await {
                    Some(Some(message)) => self.apply(message?).await?,
                    Some(None) => return Ok(()),
                    None => break,
                }
            }
            if self.service.provider.changes().is_none() {
                return Err(Status::failed_precondition(
                    "this replica no longer sends costs",
                ));
            }
            // Read before the answers are made: a later change is sent with the next answers.
            self.questions.change(&changes.since(&mut mark));
            if !self.send_due(is_beat).await? {
                return Ok(());
            }
        }
    }

    async fn apply(&mut self, message: wire::CostWatch) -> Result<(), Status> {
        let Pods { ended, placed } = self.questions.apply(message)?;
        for uid in ended {
            if self.pods.remove(&uid) {
                self.end(&uid).await?;
            }
        }
        for pod in placed {
            let uid = pod.workload.as_ref().map_or("", |w| &w.uid).to_owned();
            self.service
                .streams
                .placed()
                .by
                .insert(uid.clone(), self.number);
            self.pods.insert(uid);
            let placed = caught(async { self.service.provider.placed(pod.into()) }).await;
            placed.map_err(|panic| Status::internal(format!("placed() panicked: {panic}")))?;
        }
        Ok(())
    }

    /// Ends a pod unless another stream has placed it since.
    async fn end(&self, uid: &str) -> Result<(), Status> {
        {
            let mut placed = self.service.streams.placed();
            if placed.by.get(uid) != Some(&self.number) {
                return Ok(());
            }
            placed.by.remove(uid);
        }
        let ended = caught(async { self.service.provider.ended(uid) }).await;
        ended.map_err(|panic| Status::internal(format!("ended() panicked: {panic}")))
    }

    /// Sends the costs and failures that are due; returns whether the caller still reads.
    async fn send_due(&mut self, is_beat: bool) -> Result<bool, Status> {
        let mut update = wire::CostUpdate {
            failures: self.questions.take_refused(),
            ..wire::CostUpdate::default()
        };
        let mut bytes = 0;
        for (id, chunks) in self.questions.take_due() {
            for request in chunks {
                let asked = request.eligible_nodes.clone();
                match self.ask(request).await {
                    Ok(answer) => {
                        if let Some(costs) = self.questions.costs(id, &asked, &answer) {
                            bytes += costs.encoded_len();
                            update.costs.push(costs);
                        }
                        if answer.per_pod {
                            break;
                        }
                    }
                    Err(status) => {
                        update.failures.push(self.questions.failed(id, &status));
                        break;
                    }
                }
                let is_late = self.last_sent.elapsed() > BEAT_INTERVAL / 2;
                if bytes > FULL_BYTES || is_late {
                    bytes = 0;
                    // A sign of life: it does not cover messages that are not answered yet.
                    update.through = self.sent_through;
                    self.last_sent = Instant::now();
                    if self.out.send(Ok(mem::take(&mut update))).await.is_err() {
                        return Ok(false);
                    }
                }
            }
        }
        let through = self.questions.through;
        let is_news = through > self.sent_through || !update.costs.is_empty();
        if !is_news && update.failures.is_empty() && !is_beat {
            return Ok(true);
        }
        update.through = through;
        self.sent_through = through;
        self.last_sent = Instant::now();
        Ok(self.out.send(Ok(update)).await.is_ok())
    }

    async fn ask(&self, request: CostRequest) -> Result<CostAnswer, Status> {
        let request = CostRequest {
            deadline: Some(Instant::now() + DEADLINE),
            ..request
        };
        let answer = async {
            let answering = self.service.provider.endpoint_cost(request);
            let answered = timeout(ANSWER_TIMEOUT, answering).await;
            let late =
                |_| Status::deadline_exceeded(format!("no answer within {ANSWER_TIMEOUT:?}"));
            answered.map_err(late)?.map_err(Status::from)
        };
        let answered = self.service.gate.pass("WatchCosts", answer).await;
        answered.map(Response::into_inner)
    }
}

/// Returns the next message if it has arrived; `Some(None)` at the end of the stream.
async fn next_if_ready<S: Stream + Unpin>(stream: &mut S) -> Option<Option<S::Item>> {
    poll_fn(|context| {
        Poll::Ready(match Pin::new(&mut *stream).poll_next(context) {
            Poll::Ready(next) => Some(next),
            Poll::Pending => None,
        })
    })
    .await
}
