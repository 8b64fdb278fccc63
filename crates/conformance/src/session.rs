//! Calls to the provider, and what several checks share.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use tautline_proto::{
    allocator::{
        ConfirmRequest, ReleaseRequest, ReserveRequest, ReserveResponse,
        allocator_client::AllocatorClient,
    },
    ruleprovider::{
        EndpointCostRequest, EndpointCostResponse, EvaluateRequest, EvaluateResponse,
        rule_provider_client::RuleProviderClient,
    },
};
use tokio::{sync::OnceCell, time::Instant};
use tonic::{
    Code, Request, Response, Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::{
    Config, Error,
    check::Finding,
    failure::{CallFailure, chain},
    questions::Questions,
};

/// The extender's bound.
const MAX_ANSWER_BYTES: usize = 8 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
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
    is_allocator: OnceCell<bool>,
    /// An id for each Reserve that was granted.
    granted: Mutex<Vec<String>>,
}

impl Session {
    pub(crate) async fn connect(config: Config) -> Result<Self, Error> {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let id = format!("{:x}", since_epoch.unwrap_or_default().as_nanos());
        Ok(Self {
            channel: connect(&config).await?,
            questions: Questions::new(config.clone(), id),
            config,
            samples: OnceCell::new(),
            is_allocator: OnceCell::new(),
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
        within(deadline, request, |request| async move {
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
        within(deadline, request, |request| async move {
            client.evaluate(request).await
        })
        .await
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
        let asks = async || {
            let id = self.questions.unique("probe");
            let answer = self.release(&self.channel, &id).await;
            !answer.is_err_and(|failure| failure.code() == Some(Code::Unimplemented))
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
                let call = |request| async move { client.reserve(request).await };
                within(self.config.patience, request, call)
            })
            .await?;
        self.granted().push(answer.id.clone());
        Ok(answer)
    }

    pub(crate) async fn confirm(&self, channel: &Channel, id: &str) -> Result<(), CallFailure> {
        let confirmed = self.once_ready(|| {
            let mut client = AllocatorClient::new(channel.clone());
            let request = ConfirmRequest { id: id.to_owned() };
            let call = |request| async move { client.confirm(request).await };
            within(self.config.patience, request, call)
        });
        confirmed.await.map(drop)
    }

    pub(crate) async fn release(&self, channel: &Channel, id: &str) -> Result<(), CallFailure> {
        let released = self.once_ready(|| {
            let mut client = AllocatorClient::new(channel.clone());
            let request = ReleaseRequest { id: id.to_owned() };
            let call = |request| async move { client.release(request).await };
            within(self.config.patience, request, call)
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
            _ = within(RELEASE_TIMEOUT, request, call).await;
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

    fn granted(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends the deadline too.
pub(crate) async fn within<Q, A, F>(
    deadline: Duration,
    message: Q,
    call: impl FnOnce(Request<Q>) -> F,
) -> Result<A, CallFailure>
where
    F: Future<Output = Result<Response<A>, Status>>,
{
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    match tokio::time::timeout(deadline, call(request)).await {
        Err(_) => Err(CallFailure::NoAnswer(deadline)),
        Ok(Err(status)) => Err(match CallFailure::Status(status) {
            // The channel cancels at the deadline as well.
            failure if failure.code() == Some(Code::Cancelled) && is_timeout(&failure) => {
                CallFailure::NoAnswer(deadline)
            }
            failure => failure,
        }),
        Ok(Ok(answer)) => Ok(answer.into_inner()),
    }
}

fn is_timeout(failure: &CallFailure) -> bool {
    let CallFailure::Status(status) = failure else {
        return true;
    };
    std::error::Error::source(status).is_some_and(|s| s.is::<tonic::TimeoutExpired>())
}

async fn connect(config: &Config) -> Result<Channel, Error> {
    let address = &config.address;
    let bad = || Error::Address(address.clone());
    let Some((host, port)) = address.rsplit_once(':') else {
        return Err(bad());
    };
    if host.is_empty() || port.parse::<u16>().is_err() {
        return Err(bad());
    }
    let scheme = match config.tls {
        Some(_) => "https",
        None => "http",
    };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{address}")).map_err(|_| bad())?;
    let mut endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20);
    if let Some(tls) = &config.tls {
        let name = tls.name.as_deref().unwrap_or(host.trim_matches(['[', ']']));
        let mut client = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&tls.ca))
            .domain_name(name);
        if let Some((cert, key)) = &tls.identity {
            client = client.identity(Identity::from_pem(cert, key));
        }
        endpoint = endpoint.tls_config(client).map_err(Error::Tls)?;
    }
    endpoint.connect().await.map_err(|error| Error::Connect {
        address: address.clone(),
        why: chain(&error),
    })
}
