//! Calls to the provider, and the answers that several checks share.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime},
};

use tautline_proto::{
    allocator::{
        ConfirmRequest, ReleaseRequest, ReserveRequest, ReserveResponse,
        allocator_client::AllocatorClient,
    },
    ruleprovider::{
        EndpointCostResponse, EvaluateRequest, EvaluateResponse,
        rule_provider_client::RuleProviderClient,
    },
};
use tokio::{
    sync::{Mutex, OnceCell},
    time::{Instant, sleep},
};
use tonic::{Code, Request, transport::Channel};

use crate::{
    Config, Error,
    failure::{Answer, CallFailure, Finding, Verdict},
    questions::{NO_PEERS, ODD_PEERS, PLAIN, Question, Questions, TURNBUCKLE, UNKNOWN_NODES},
    wire::{Reply, connect, must_speak_grpc, timed, within},
};

/// The maximum size of an answer, as in the extender.
const MAX_ANSWER_BYTES: usize = 8 << 20;
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// The number of attempts to connect again before a provider counts as ended, because it may be
/// restarted.
const MAX_RECONNECTS: usize = 4;
/// The pause between calls to a provider that is not ready.
pub(crate) const NOT_READY_PAUSE: Duration = Duration::from_millis(200);

/// A question's description, its nodes, and the answer.
pub(crate) type Sample = (&'static str, Vec<String>, Answer<EndpointCostResponse>);

/// The state of a run against one provider.
pub(crate) struct Session {
    pub config: Config,
    pub questions: Questions,
    pub channel: Channel,
    pub samples: OnceCell<Vec<Sample>>,
    placed: OnceCell<Answer<EvaluateResponse>>,
    is_allocator: OnceCell<bool>,
    has_gone: AtomicBool,
    /// The id of each granted Reserve that has not been released.
    granted: Mutex<Vec<String>>,
}

impl Session {
    pub(crate) async fn connect(config: Config) -> Result<Self, Error> {
        let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let channel = connect(&config).await?;
        must_speak_grpc(&channel, &config).await?;
        Ok(Self {
            channel,
            questions: Questions::new(config.clone(), format!("{:x}", since_epoch.as_nanos())),
            config,
            samples: OnceCell::new(),
            placed: OnceCell::new(),
            is_allocator: OnceCell::new(),
            has_gone: AtomicBool::new(false),
            granted: Mutex::default(),
        })
    }

    pub(crate) async fn another_connection(&self) -> Verdict<Channel> {
        let failed = |error| Finding::Failed(format!("another connection: {error}"));
        connect(&self.config).await.map_err(failed)
    }

    pub(crate) fn provider(&self) -> RuleProviderClient<Channel> {
        RuleProviderClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(crate) async fn ask(&self, question: Question) -> Answer<EndpointCostResponse> {
        let (mut client, request) = (self.provider(), self.timed(question));
        self.call(client.endpoint_cost(request)).await
    }

    pub(crate) async fn evaluate(&self, request: EvaluateRequest) -> Answer<EvaluateResponse> {
        let mut client = RuleProviderClient::new(self.channel.clone());
        self.call(client.evaluate(self.timed(request))).await
    }

    /// Returns the evaluation of the placed pods, which is requested once.
    pub(crate) async fn placed(&self) -> &Answer<EvaluateResponse> {
        let ask = || self.evaluate(self.questions.placed());
        self.placed.get_or_init(ask).await
    }

    /// Returns the answers that several checks judge.
    pub(crate) async fn samples(&self) -> &[Sample] {
        let ask = async || {
            let mut samples = Vec::new();
            for (what, question) in [PLAIN, NO_PEERS, ODD_PEERS, TURNBUCKLE, UNKNOWN_NODES] {
                let question = question(&self.questions);
                let nodes = question.eligible_nodes.clone();
                samples.push((what, nodes, self.ask(question).await));
            }
            samples
        };
        self.samples.get_or_init(ask).await
    }

    pub(crate) async fn is_allocator(&self) -> bool {
        let is_served = |failure: Option<CallFailure>| {
            !failure.is_some_and(|failure| failure.is(&[Code::Unimplemented]))
        };
        let ask = async || {
            let (channel, id) = (&self.channel, self.questions.unique("probe"));
            let node = self.questions.unique("probe-node");
            let request = self.questions.reserve("probe", &node, 1);
            // A provider may lack some of the calls.
            is_served(self.release(channel, &id).await.err())
                || is_served(self.confirm(channel, &id).await.err())
                || self.config.reserve && is_served(self.reserve(channel, request).await.err())
        };
        *self.is_allocator.get_or_init(ask).await
    }

    pub(crate) async fn reserve(
        &self,
        channel: &Channel,
        request: ReserveRequest,
    ) -> Answer<ReserveResponse> {
        let call = |mut client: AllocatorClient<Channel>| {
            let request = self.timed(request.clone());
            async move { client.reserve(request).await }
        };
        let answer = self.allocate(channel, call).await?;
        self.granted.lock().await.push(answer.id.clone());
        Ok(answer)
    }

    pub(crate) async fn confirm(&self, channel: &Channel, id: &str) -> Answer<()> {
        let call = |mut client: AllocatorClient<Channel>| {
            let request = self.timed(ConfirmRequest { id: id.to_owned() });
            async move { client.confirm(request).await }
        };
        self.allocate(channel, call).await.map(drop)
    }

    pub(crate) async fn release(&self, channel: &Channel, id: &str) -> Answer<()> {
        let call = |mut client: AllocatorClient<Channel>| {
            let request = self.timed(ReleaseRequest { id: id.to_owned() });
            async move { client.release(request).await }
        };
        self.allocate(channel, call).await?;
        let mut granted = self.granted.lock().await;
        if let Some(at) = granted.iter().position(|held| held == id) {
            granted.swap_remove(at);
        }
        Ok(())
    }

    /// Calls the Allocator, again while it is unavailable.
    async fn allocate<A, F: Future<Output = Reply<A>>>(
        &self,
        channel: &Channel,
        call: impl Fn(AllocatorClient<Channel>) -> F,
    ) -> Answer<A> {
        let once = || self.call(call(AllocatorClient::new(channel.clone())));
        self.retry(once, &[Code::Unavailable]).await
    }

    /// Releases the reservations that the last check still holds.
    pub(crate) async fn release_all(&self) {
        for id in std::mem::take(&mut *self.granted.lock().await) {
            let mut client = AllocatorClient::new(self.channel.clone());
            let release = client.release(timed(RELEASE_TIMEOUT, ReleaseRequest { id }));
            // An error does not matter: the reservation ends with its hold anyway.
            _ = self.unless_gone(within(RELEASE_TIMEOUT, release)).await;
        }
    }

    /// Repeats a call while it fails by one of the codes, within the time to start.
    pub(crate) async fn retry<T, F: Future<Output = Answer<T>>>(
        &self,
        call: impl Fn() -> F,
        codes: &[Code],
    ) -> Answer<T> {
        let end = Instant::now() + self.config.start_within;
        loop {
            match call().await {
                Err(failure) if failure.is(codes) && Instant::now() < end => {
                    sleep(NOT_READY_PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    pub(crate) fn timed<Q>(&self, message: Q) -> Request<Q> {
        timed(self.config.patience, message)
    }

    pub(crate) async fn call<A>(&self, call: impl Future<Output = Reply<A>>) -> Answer<A> {
        self.unless_gone(within(self.config.patience, call)).await
    }

    /// Awaits an answer, unless the provider has ended before.
    pub(crate) async fn unless_gone<T>(&self, call: impl Future<Output = Answer<T>>) -> Answer<T> {
        if self.has_gone() {
            return Err(CallFailure::NotAsked);
        }
        let answer = call.await;
        if let Err(CallFailure::Broken(_)) = &answer {
            for _ in 0..MAX_RECONNECTS {
                if connect(&self.config).await.is_ok() {
                    return answer;
                }
                sleep(NOT_READY_PAUSE).await;
            }
            self.has_gone.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// Returns whether the provider has ended and was not started again.
    pub(crate) fn has_gone(&self) -> bool {
        self.has_gone.load(Ordering::Relaxed)
    }
}
