//! A small HTTP client for loopback and in-cluster calls.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, StatusCode};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

const DEADLINE: Duration = Duration::from_secs(10);
pub(crate) const MAX_BODY_BYTES: usize = 256 << 20;

#[derive(Clone)]
pub(crate) struct Http(Client<HttpConnector, Full<Bytes>>);

impl Default for Http {
    fn default() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }
}

impl Http {
    pub(crate) async fn get(&self, url: &str) -> Result<(StatusCode, Bytes)> {
        self.send(Method::GET, url, Bytes::new()).await
    }

    /// Posts JSON and returns the answer's body; any status but 200 is an error.
    pub(crate) async fn post(&self, url: &str, body: Vec<u8>) -> Result<Bytes> {
        let (status, body) = self.send(Method::POST, url, body.into()).await?;
        if status != StatusCode::OK {
            bail!(
                "{url} answered {status}: {}",
                String::from_utf8_lossy(&body).trim()
            );
        }
        Ok(body)
    }

    async fn send(&self, method: Method, url: &str, body: Bytes) -> Result<(StatusCode, Bytes)> {
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header("content-type", "application/json")
            .body(Full::new(body))
            .with_context(|| format!("{url:?} is not a URL; write http://HOST:PORT"))?;
        let call = async {
            let (head, body) = self.0.request(request).await?.into_parts();
            let body = Limited::new(body, MAX_BODY_BYTES)
                .collect()
                .await
                .map_err(anyhow::Error::from_boxed)?;
            anyhow::Ok((head.status, body.to_bytes()))
        };
        tokio::time::timeout(DEADLINE, call)
            .await
            .with_context(|| format!("{url} did not answer within {DEADLINE:?}"))?
            .with_context(|| format!("{url} cannot be reached"))
    }
}
