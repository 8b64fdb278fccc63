//! Calls to the provider, and what several checks share.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use futures::channel::mpsc::UnboundedReceiver;
use tautline_proto::{
    allocator::{
        ConfirmRequest, ReleaseRequest, ReserveRequest, ReserveResponse,
        allocator_client::AllocatorClient,
    },
    ruleprovider::{
        CostUpdate, CostWatch, EndpointCostRequest, EndpointCostResponse, EvaluateRequest,
        EvaluateResponse, rule_provider_client::RuleProviderClient,
    },
};
use tokio::{sync::OnceCell, time::Instant};
use tonic::{Code, Request, Response, Status, Streaming, transport::Channel};

use crate::{
    Config, Error,
    check::Finding,
    failure::CallFailure,
    questions::Questions,
    wire::{connect, failure, must_speak_grpc, within},
};

/// The extender's bound.
const MAX_ANSWER_BYTES: usize = 8 << 20;
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// Attempts to connect again before a provider counts as gone: it may be restarted.
const RECONNECTS: usize = 4;
/// Pause between calls to a provider that is not ready.
pub(crate) const NOT_READY_PAUSE: Duration = Duration::from_millis(200);

/// A question with its answer.
pub(crate) struct Sample {
    pub label: &'static str,
    pub asked: Vec<String>,
    pub answer: Result<EndpointCostResponse, CallFailure>,
}

/// Answers that several checks judge.
pub(crate) struct Samples {
    pub plain: Sample,
    pub no_peers: Sample,
    pub odd_peers: Sample,
    pub turnbuckle: Sample,
    pub unknown_nodes: Sample,
}

impl Samples {
    pub(crate) fn answered(&self) -> impl Iterator<Item = (&Sample, &EndpointCostResponse)> {
        let all = [
            &self.plain,
            &self.no_peers,
            &self.odd_peers,
            &self.turnbuckle,
            &self.unknown_nodes,
        ];
        let answered = |sample: &'_ Sample| sample.answer.is_ok();
        all.into_iter()
            .filter(move |sample| answered(sample))
            .filter_map(|sample| Some((sample, sample.answer.as_ref().ok()?)))
    }
}

/// The run against one provider.
pub(crate) struct Session {
    pub config: Config,
    pub questions: Questions,
    pub channel: Channel,
    samples: OnceCell<Samples>,
    placed: OnceCell<Result<EvaluateResponse, CallFailure>>,
    is_allocator: OnceCell<bool>,
    has_gone: AtomicBool,
    /// An id for each Reserve that was granted.
    granted: Mutex<Vec<String>>,
}

impl Session {
    pub(crate) async fn connect(config: Config) -> Result<Self, Error> {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let id = format!("{:x}", since_epoch.unwrap_or_default().as_nanos());
        let channel = connect(&config).await?;
        must_speak_grpc(&channel, &config).await?;
        Ok(Self {
            channel,
            questions: Questions::new(config.clone(), id),
            config,
            samples: OnceCell::new(),
            placed: OnceCell::new(),
            is_allocator: OnceCell::new(),
            has_gone: AtomicBool::new(false),
            granted: Mutex::default(),
        })
    }

    /// As a caller that has crashed and comes back.
    pub(crate) async fn another_connection(&self) -> Result<Channel, Finding> {
        let connected = connect(&self.config).await;
        connected.map_err(|error| Finding::Failed(format!("another connection: {error}")))
    }

    pub(crate) async fn endpoint_cost(
        &self,
        request: EndpointCostRequest,
    ) -> Result<EndpointCostResponse, CallFailure> {
        self.endpoint_cost_within(request, self.config.patience)
            .await
    }

    pub(crate) async fn endpoint_cost_within(
        &self,
        request: EndpointCostRequest,
        deadline: Duration,
    ) -> Result<EndpointCostResponse, CallFailure> {
        let client = RuleProviderClient::new(self.channel.clone());
        let mut client = client.max_decoding_message_size(MAX_ANSWER_BYTES);
        self.call(deadline, request, |request| async move {
            client.endpoint_cost(request).await
        })
        .await
    }

    /// A question that must be answered.
    pub(crate) async fn ask(
        &self,
        what: &str,
        request: EndpointCostRequest,
    ) -> Result<EndpointCostResponse, Finding> {
        let answer = self.endpoint_cost(request).await;
        answer.map_err(|failure| Finding::unanswered(what, &failure))
    }

    pub(crate) async fn evaluate(
        &self,
        request: EvaluateRequest,
    ) -> Result<EvaluateResponse, CallFailure> {
        self.evaluate_within(request, self.config.patience).await
    }

    pub(crate) async fn evaluate_within(
        &self,
        request: EvaluateRequest,
        deadline: Duration,
    ) -> Result<EvaluateResponse, CallFailure> {
        let mut client = RuleProviderClient::new(self.channel.clone());
        self.call(deadline, request, |request| async move {
            client.evaluate(request).await
        })
        .await
    }

    /// Opens a stream of costs. The provider is told no deadline, which would end the stream.
    pub(crate) async fn watch_costs(
        &self,
        messages: UnboundedReceiver<CostWatch>,
    ) -> Result<Streaming<CostUpdate>, CallFailure> {
        let client = RuleProviderClient::new(self.channel.clone());
        let mut client = client.max_decoding_message_size(MAX_ANSWER_BYTES);
        let patience = self.config.patience;
        self.unless_gone(async {
            match tokio::time::timeout(patience, client.watch_costs(messages)).await {
                Ok(opened) => opened.map(Response::into_inner).map_err(failure),
                Err(_) => Err(CallFailure::NoAnswer(patience)),
            }
        })
        .await
    }

    /// The evaluation of placed pods.
    pub(crate) async fn placed(&self) -> &Result<EvaluateResponse, CallFailure> {
        let ask = || self.evaluate(self.questions.placed());
        self.placed.get_or_init(ask).await
    }

    pub(crate) async fn samples(&self) -> &Samples {
        let questions = &self.questions;
        let sample = async |label, question: EndpointCostRequest| Sample {
            label,
            asked: question.eligible_nodes.clone(),
            answer: self.endpoint_cost(question).await,
        };
        let samples = async || Samples {
            plain: sample("a plain question", questions.plain()).await,
            no_peers: sample("a question without peers", questions.without_peers()).await,
            odd_peers: sample(
                "a question with a Service and a pod on an unknown node as peers",
                questions.with_odd_peers(),
            )
            .await,
            turnbuckle: sample(
                "a question with Turnbuckle's fields alone",
                questions.turnbuckle(),
            )
            .await,
            unknown_nodes: sample(
                "a question with three unknown nodes",
                questions.with_unknown_nodes(),
            )
            .await,
        };
        self.samples.get_or_init(samples).await
    }

    pub(crate) async fn is_allocator(&self) -> bool {
        fn is_served<T>(answer: Result<T, CallFailure>) -> bool {
            !answer.is_err_and(|failure| failure.code() == Some(Code::Unimplemented))
        }
        let asks = async || {
            let (channel, id) = (&self.channel, self.questions.unique("probe"));
            // A provider may have left one of them out.
            is_served(self.release(channel, &id).await)
                || is_served(self.confirm(channel, &id).await)
                || self.config.reserve && {
                    let node = self.questions.unique("probe-node");
                    let request = self.questions.reserve("probe", &node, 1);
                    is_served(self.reserve(channel, request).await)
                }
        };
        *self.is_allocator.get_or_init(asks).await
    }

    /// Calls again while the allocator cannot reserve at the moment.
    pub(crate) async fn reserve(
        &self,
        channel: &Channel,
        request: ReserveRequest,
    ) -> Result<ReserveResponse, CallFailure> {
        let answer = self
            .once_ready(|| {
                let (mut client, request) =
                    (AllocatorClient::new(channel.clone()), request.clone());
                let call = move |request| async move { client.reserve(request).await };
                self.call(self.config.patience, request, call)
            })
            .await?;
        self.granted().push(answer.id.clone());
        Ok(answer)
    }

    pub(crate) async fn confirm(&self, channel: &Channel, id: &str) -> Result<(), CallFailure> {
        let confirmed = self.once_ready(|| {
            let mut client = AllocatorClient::new(channel.clone());
            let request = ConfirmRequest { id: id.to_owned() };
            let call = move |request| async move { client.confirm(request).await };
            self.call(self.config.patience, request, call)
        });
        confirmed.await.map(drop)
    }

    pub(crate) async fn release(&self, channel: &Channel, id: &str) -> Result<(), CallFailure> {
        let released = self.once_ready(|| {
            let mut client = AllocatorClient::new(channel.clone());
            let request = ReleaseRequest { id: id.to_owned() };
            let call = move |request| async move { client.release(request).await };
            self.call(self.config.patience, request, call)
        });
        released.await?;
        let mut granted = self.granted();
        if let Some(at) = granted.iter().position(|held| held == id) {
            granted.swap_remove(at);
        }
        Ok(())
    }

    /// Returns what the last check still holds.
    pub(crate) async fn release_all(&self) {
        let held = std::mem::take(&mut *self.granted());
        for id in held {
            let mut client = AllocatorClient::new(self.channel.clone());
            let request = ReleaseRequest { id };
            let call = |request| async move { client.release(request).await };
            // It ends with its hold anyway.
            _ = self.call(RELEASE_TIMEOUT, request, call).await;
        }
    }

    /// Calls until the status is not UNAVAILABLE.
    pub(crate) async fn once_ready<T, F>(
        &self,
        mut call: impl FnMut() -> F,
    ) -> Result<T, CallFailure>
    where
        F: Future<Output = Result<T, CallFailure>>,
    {
        let end = Instant::now() + self.config.start_within;
        loop {
            match call().await {
                Err(failure)
                    if failure.code() == Some(Code::Unavailable) && Instant::now() < end =>
                {
                    tokio::time::sleep(NOT_READY_PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    pub(crate) async fn call<Q, A, F>(
        &self,
        deadline: Duration,
        message: Q,
        call: impl FnOnce(Request<Q>) -> F,
    ) -> Result<A, CallFailure>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        self.unless_gone(within(deadline, message, call)).await
    }

    /// Awaits an answer, not if the provider has gone.
    pub(crate) async fn unless_gone<T>(
        &self,
        answer: impl Future<Output = Result<T, CallFailure>>,
    ) -> Result<T, CallFailure> {
        if self.has_gone() {
            return Err(CallFailure::NotAsked);
        }
        let answer = answer.await;
        if let Err(CallFailure::Broken(_)) = &answer {
            self.note_end().await;
        }
        answer
    }

    /// The provider has ended, and was not started again.
    pub(crate) fn has_gone(&self) -> bool {
        self.has_gone.load(Ordering::Relaxed)
    }

    /// The shared answers are there.
    pub(crate) fn has_samples(&self) -> bool {
        self.samples.initialized()
    }

    async fn note_end(&self) {
        for _ in 0..RECONNECTS {
            if connect(&self.config).await.is_ok() {
                return;
            }
            tokio::time::sleep(NOT_READY_PAUSE).await;
        }
        self.has_gone.store(true, Ordering::Relaxed);
    }

    fn granted(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
