//! Connections to the provider, and single calls.

use std::time::Duration;

use tokio::time::Instant;
use tonic::{
    Request, Response, Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::{
    Config, Error,
    failure::{CallFailure, chain},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Any answer will do, also that there is no such service.
pub(crate) async fn must_speak_grpc(channel: &Channel, config: &Config) -> Result<(), Error> {
    let mut client = HealthClient::new(channel.clone());
    let call = |request| async move { client.check(request).await };
    let request = HealthCheckRequest::default();
    match within(config.connect_within(), request, call).await {
        Err(failure @ (CallFailure::Broken(_) | CallFailure::NoAnswer(_))) => Err(Error::NoGrpc {
            address: config.address.clone(),
            why: failure.to_string(),
        }),
        Ok(_) | Err(CallFailure::NotAsked | CallFailure::Status(_)) => Ok(()),
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
    let start = Instant::now();
    match tokio::time::timeout(deadline, call(request)).await {
        Err(_) => Err(CallFailure::NoAnswer(deadline)),
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(match failure(status) {
            // Channel and provider give up at the deadline as well, by their clocks.
            CallFailure::Broken(_) if start.elapsed() >= deadline.mul_f32(0.9) => {
                CallFailure::NoAnswer(deadline)
            }
            failure => failure,
        }),
    }
}

/// Tells the provider's own status from a broken connection.
pub(crate) fn failure(status: Status) -> CallFailure {
    match std::error::Error::source(&status) {
        None => CallFailure::Status(status),
        Some(cause) => CallFailure::Broken(chain(cause)),
    }
}

pub(crate) async fn connect(config: &Config) -> Result<Channel, Error> {
    let address = &config.address;
    let bad = || Error::Address(address.clone());
    let Some((host, port)) = address.rsplit_once(':') else {
        return Err(bad());
    };
    if host.is_empty() || host.contains('/') || port.parse::<u16>().is_err() {
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
    let limit = config.connect_within();
    let why = match tokio::time::timeout(limit, endpoint.connect()).await {
        Ok(Ok(channel)) => return Ok(channel),
        Ok(Err(error)) => chain(&error),
        // The timeout of the endpoint does not count for TLS.
        Err(_) => format!("no TLS handshake within {limit:?}"),
    };
    Err(Error::Connect {
        address: address.clone(),
        why,
    })
}
