//! Connections to the provider, and single calls.

use std::time::Duration;

use tautline_runtime::error_text::error_text;
use tokio::time::Instant;
use tonic::{
    Request, Response, Status,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::{
    Config, Error,
    failure::{Answer, CallFailure},
};

pub(crate) type Reply<A> = Result<Response<A>, Status>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Checks that the server speaks gRPC. Any answer passes, even that there is no health service.
pub(crate) async fn must_speak_grpc(channel: &Channel, config: &Config) -> Result<(), Error> {
    let limit = config.connect_within();
    let mut client = HealthClient::new(channel.clone());
    let call = client.check(timed(limit, HealthCheckRequest::default()));
    match within(limit, call).await {
        Err(failure @ (CallFailure::Broken(_) | CallFailure::NoAnswer(_))) => Err(Error::NoGrpc {
            address: config.address.clone(),
            why: failure.to_string(),
        }),
        _ => Ok(()),
    }
}

/// Returns a request that carries its deadline.
pub(crate) fn timed<Q>(deadline: Duration, message: Q) -> Request<Q> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}

/// Ends a call at its deadline.
pub(crate) async fn within<A>(limit: Duration, call: impl Future<Output = Reply<A>>) -> Answer<A> {
    let start = Instant::now();
    match tokio::time::timeout(limit, call).await {
        Err(_) => Err(CallFailure::NoAnswer(limit)),
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => match status.into() {
            // The channel and the provider end the call at the deadline as well, by their own
            // clocks.
            CallFailure::Broken(_) if start.elapsed() >= limit.mul_f32(0.9) => {
                Err(CallFailure::NoAnswer(limit))
            }
            failure => Err(failure),
        },
    }
}

pub(crate) async fn connect(config: &Config) -> Result<Channel, Error> {
    let address = &config.address;
    let bad = || Error::Address(address.clone());
    let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
    if host.is_empty() || host.contains('/') || port.parse::<u16>().is_err() {
        return Err(bad());
    }
    let scheme = config.tls.as_ref().map_or("http", |_| "https");
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
        .map_err(|_| bad())?
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20);
    if let Some(tls) = &config.tls {
        endpoint = endpoint.tls_config(tls.clone()).map_err(Error::Tls)?;
    }
    let limit = config.connect_within();
    let why = match tokio::time::timeout(limit, endpoint.connect()).await {
        Ok(Ok(channel)) => return Ok(channel),
        Ok(Err(error)) => error_text(&error),
        // The endpoint's own timeout does not cover the TLS handshake.
        Err(_) => format!("no TLS handshake within {limit:?}"),
    };
    Err(Error::Connect {
        address: address.clone(),
        why,
    })
}
