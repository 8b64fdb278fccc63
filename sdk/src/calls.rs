//! The connections of the gRPC port. A connection with a call in progress is never closed as idle.

use std::{convert::Infallible, future::Future, pin::pin, sync::Arc, time::Duration};

use http_body_util::BodyExt;
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tautline_serve::{
    http::{Connection, Port, Protocol},
    stream::Stream,
    tls::ServerTls,
};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{
    Status,
    body::Body,
    codegen::http::{HeaderMap, Request, Response},
    transport::server::{Connected, TcpConnectInfo},
};

/// The deadline of unary calls, so that unfinished requests end. Streams have no deadline.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

struct CallInProgress(Arc<Connection>);

impl Drop for CallInProgress {
    fn drop(&mut self) {
        self.0.close_stream();
    }
}

/// Answers the calls of accepted connections until `stop`, then finishes the calls in progress.
pub(crate) async fn serve<F>(
    routes: impl Fn(Request<Body>) -> F + Clone + Send + 'static,
    (listener, port): (TcpListener, Port),
    tls: Option<ServerTls>,
    stop: CancellationToken,
) where
    F: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
{
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    http2
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .max_concurrent_streams(None)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20);
    let (open, stopped) = (TaskTracker::new(), stop.clone());
    let tracker = open.clone();
    let connection = move |stream: Stream| {
        let tcp = TcpConnectInfo {
            local_addr: stream.local_addr().ok(),
            remote_addr: stream.peer_addr().ok(),
        };
        let tls = stream.session().map(Connected::connect_info);
        let connection = Arc::clone(stream.connection());
        let routes = routes.clone();
        let calls = service_fn(move |request: Request<Incoming>| {
            // Every client may watch health and reflection indefinitely: such a connection is idle.
            let is_counted = !request.uri().path().starts_with("/grpc.");
            let call = is_counted.then(|| {
                connection.open_stream();
                CallInProgress(Arc::clone(&connection))
            });
            let left = time_left(request.headers());
            let left = left.map_or(CALL_TIMEOUT, |left| left.min(CALL_TIMEOUT));
            let mut request = request.map(Body::new);
            // `remote_addr` and `peer_certs` expect the extensions of tonic's own listeners.
            match tls.clone() {
                Some(tls) => _ = request.extensions_mut().insert(tls),
                None => _ = request.extensions_mut().insert(tcp.clone()),
            }
            let answer = tokio::time::timeout(left, routes(request));
            async move {
                let answer = match answer.await {
                    Ok(answered) => answered?,
                    Err(_) => Status::cancelled("Timeout expired").into_http(),
                };
                // The call ends when hyper drops the body.
                let counted = move |frame| {
                    _ = &call;
                    frame
                };
                Ok::<_, Infallible>(answer.map(|body| body.map_frame(counted)))
            }
        });
        let served = http2.serve_connection(TokioIo::new(stream), calls);
        let stopped = stopped.clone();
        tracker.track_future(async move {
            let mut served = pin!(served);
            let ended = tokio::select! {
                ended = &mut served => ended,
                () = stopped.cancelled() => {
                    served.as_mut().graceful_shutdown();
                    served.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "connection ended with an error");
            }
        })
    };
    port.accept(listener, tls, Protocol::Http2, connection, stop)
        .await;
    open.close();
    open.wait().await;
}

/// Returns the time that the caller waits, from gRPC's header: at most eight digits and a unit.
/// <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>
pub(crate) fn time_left(headers: &HeaderMap) -> Option<Duration> {
    parse(headers.get("grpc-timeout")?.to_str().ok()?)
}

fn parse(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let digits = text.strip_suffix(unit)?;
    if digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(number * 3_600),
        'M' => Duration::from_secs(number * 60),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;
    use tautline_proto::ruleprovider::EndpointCostRequest;
    use tonic::Request;

    use super::*;
    use crate::{
        CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
        testkit,
    };

    #[test]
    fn parse_reads_grpc_timeouts() {
        assert_eq!(parse("500m"), Some(Duration::from_millis(500)));
        assert_eq!(parse("1S"), Some(Duration::from_secs(1)));
        assert_eq!(
            parse("99999999H"),
            Some(Duration::from_secs(99_999_999 * 3_600))
        );
        for text in ["", "m", "5", "123456789m", "-1S", "1s", "1 S", "µ"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    /// The cost is the remaining time in milliseconds.
    struct RemainingTime;

    impl RuleProvider for RemainingTime {
        async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
            let left = request
                .deadline
                .map(|d| d.saturating_duration_since(Instant::now()));
            let millis = left.map_or(-1, |l| i64::try_from(l.as_millis()).unwrap_or(i64::MAX));
            Ok([("left".to_owned(), millis)].into_iter().collect())
        }
        async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
            Ok(Evaluation::compliant(""))
        }
    }

    #[tokio::test]
    async fn requests_carry_the_deadline() {
        let running = testkit::start(RemainingTime).await.unwrap();
        let left = async |timeout: Option<Duration>| {
            let mut request = Request::new(EndpointCostRequest::default());
            if let Some(timeout) = timeout {
                request.set_timeout(timeout);
            }
            let answer = running.client.clone().endpoint_cost(request).await;
            answer.unwrap().get_ref().node_and_cost[0].cost
        };
        assert_eq!(left(None).await, -1);
        let millis = left(Some(Duration::from_secs(90))).await;
        assert!((30_000..=90_000).contains(&millis), "{millis}");
        running.stop().await;
    }

    proptest! {
        #[test]
        fn parse_accepts_any_text(text in ".{0,12}|[0-9]{0,10}[HMSmun]") { let _ = parse(&text); }
    }
}
