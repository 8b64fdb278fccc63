//! Limits the wait for an API server that does not answer: the user gets a notice, and later the
//! request fails.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use hyper::{Request, Response};
use kube::client::Body;
use tower::{BoxError, Layer, Service};

use crate::cluster_fault::{ApiServerAddress, NoAnswer};

const NOTICE_AFTER: Duration = Duration::from_secs(3);
const DEADLINE: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub(crate) struct TimeoutLayer {
    address: ApiServerAddress,
    /// True once the user has got the notice, which is one for all requests.
    noticed: Arc<AtomicBool>,
    mention: fn(&str),
}

impl TimeoutLayer {
    pub(crate) fn new(address: ApiServerAddress) -> Self {
        Self {
            address,
            noticed: Arc::default(),
            mention: |line| note!("{line}"),
        }
    }

    fn notice(&self) {
        if !self.noticed.swap(true, Ordering::Relaxed) {
            let (url, seconds) = (&self.address.url, NOTICE_AFTER.as_secs());
            (self.mention)(&format!(
                "the API server at {url} has not answered for {seconds} s; still waiting"
            ));
        }
    }

    /// Returns an error with its fix. The client library's own errors, such as those of a
    /// credential plugin, stay as they are.
    fn explain(&self, error: BoxError) -> BoxError {
        if error.is::<kube::Error>() {
            return error;
        }
        self.address.no_answer(&error).into()
    }
}

impl<S> Layer<S> for TimeoutLayer {
    type Service = TimeoutService<S>;

    fn layer(&self, inner: S) -> TimeoutService<S> {
        let patience = self.clone();
        TimeoutService { inner, patience }
    }
}

#[derive(Clone)]
pub(crate) struct TimeoutService<S> {
    inner: S,
    patience: TimeoutLayer,
}

type ResponseFuture<B> = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

impl<S, B> Service<Request<Body>> for TimeoutService<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = ResponseFuture<B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> ResponseFuture<B> {
        // A watch is silent while nothing changes, and some proxies hold back even its headers. The
        // list before it has the deadline.
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.split('&').any(|part| part == "watch=true");
        let (call, patience) = (self.inner.call(request), self.patience.clone());
        Box::pin(async move {
            if is_watch {
                return call.await.map_err(|e| patience.explain(e));
            }
            let mut call = std::pin::pin!(call);
            if let Ok(answer) = tokio::time::timeout(NOTICE_AFTER, call.as_mut()).await {
                return answer.map_err(|e| patience.explain(e));
            }
            patience.notice();
            let answer = tokio::time::timeout(DEADLINE - NOTICE_AFTER, call).await;
            match answer {
                Ok(answer) => answer.map_err(|e| patience.explain(e)),
                Err(_) => Err(NoAnswer::silent(&patience.address, DEADLINE.as_secs()).into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};
    use tower::ServiceExt;

    use super::*;

    static MENTIONED: AtomicBool = AtomicBool::new(false);

    /// Two requests to a server that answers after `delay`.
    async fn call_twice(path: &'static str, delay: Duration) -> Result<Response<()>, BoxError> {
        let server = tower::service_fn(move |_: Request<Body>| async move {
            sleep(delay).await;
            Ok::<_, BoxError>(Response::new(()))
        });
        let config = kube::Config::new("http://here".parse().unwrap());
        let mut patience = TimeoutLayer::new(ApiServerAddress::of(&config));
        patience.mention = |line| {
            assert!(
                line.starts_with("the API server at http://here has not"),
                "{line}"
            );
            assert!(!MENTIONED.swap(true, Ordering::SeqCst), "only once");
        };
        let service = patience.layer(server);
        let request = || Request::get(path).body(Body::empty()).unwrap();
        let (one, two) = tokio::join!(
            service.clone().oneshot(request()),
            service.oneshot(request()),
        );
        one.and(two)
    }

    #[tokio::test(start_paused = true)]
    async fn silent_request_gives_one_notice_and_fails() {
        let list = "http://here/api/v1/pods?limit=500";
        let soon = NOTICE_AFTER - Duration::from_millis(1);
        call_twice(list, soon).await.unwrap();
        call_twice("http://here/api/v1/pods?watch=true&a=b", DEADLINE * 2)
            .await
            .unwrap();
        assert!(!MENTIONED.load(Ordering::SeqCst), "that is not silence");
        call_twice(list, NOTICE_AFTER * 2).await.unwrap();
        assert!(MENTIONED.swap(false, Ordering::SeqCst));
        let start = Instant::now();
        let error = call_twice(list, DEADLINE * 100)
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "no answer from http://here within 15 s; is the cluster up, and is it the one that \
             --kubeconfig and --context name?"
        );
        assert_eq!(start.elapsed(), DEADLINE);
    }
}
