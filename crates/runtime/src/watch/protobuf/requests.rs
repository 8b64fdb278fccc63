//! Questions to the API server, each within a time.

use std::time::Duration;

use anyhow::{Result, bail};
use http::{StatusCode, header};
use http_body_util::BodyExt;
use kube::{
    Client,
    api::{ListParams, Request},
    client::Body,
};
use tautline_api::watched::{self, Status, Watchable};

use super::{Decoded, Selectors};

const PAGE: u32 = 500;
/// The most that a page, or the beginning of a watch, may take: the API server's own limit.
const ANSWER: Duration = Duration::from_secs(60);

/// The API server no longer knows what changed since the version asked for.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Gone(String);

/// Each object that is selected; gives their version.
pub(super) async fn pages<K: Watchable>(
    client: &Client,
    selectors: Selectors,
    mut each: impl FnMut(Decoded<K>),
) -> Result<String> {
    let mut params = ListParams::default().limit(PAGE);
    params.field_selector = selectors.fields.map(str::to_owned);
    params.label_selector = selectors.labels;
    loop {
        let request = Request::new(K::url_path(&(), None)).list(&params)?;
        let page = in_time(async {
            let body = send(client, request, watched::PROTOBUF).await?;
            Ok(watched::list(body.collect().await?.to_bytes())?)
        });
        let page = page.await?;
        for item in page.items {
            each(watched::object(item));
        }
        if page.metadata.continue_.is_empty() {
            return Ok(page.metadata.resource_version);
        }
        params.continue_token = Some(page.metadata.continue_);
    }
}

pub(super) async fn in_time<T>(answer: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(ANSWER, answer).await {
        Ok(answer) => answer,
        Err(_) => bail!("the API server did not answer within {ANSWER:?}"),
    }
}

pub(super) async fn send(
    client: &Client,
    request: http::Request<Vec<u8>>,
    accept: &'static str,
) -> Result<Body> {
    let mut request = request.map(Body::from);
    let headers = request.headers_mut();
    headers.insert(header::ACCEPT, header::HeaderValue::from_static(accept));
    let response = client.send(request).await?;
    let code = response.status();
    if code == StatusCode::OK {
        return Ok(response.into_body());
    }
    let body = response.into_body().collect().await?.to_bytes();
    // Before it knows who asks, the API server answers in JSON or text.
    let status = watched::status(body.clone()).unwrap_or_else(|_| Status {
        code: code.as_u16().into(),
        message: String::from_utf8_lossy(&body).trim().to_owned(),
        ..Status::default()
    });
    Err(refused(status))
}

pub(super) fn refused(status: Status) -> anyhow::Error {
    let said = format!("{} ({} {})", status.message, status.code, status.reason);
    match status.code {
        410 => Gone(said).into(),
        _ => anyhow::anyhow!(said),
    }
}
