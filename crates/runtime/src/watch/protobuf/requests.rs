//! Sends the list and watch requests of a protobuf watch to the API server: pages of up to 500
//! objects, a deadline of 60 s, and errors from statuses.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use http::{StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::{
    Client,
    api::{ListParams, Request},
    client::Body,
};
use tautline_api::watched::{self, Status, Watchable};

use super::Decoded;

const PAGE_OBJECTS: u32 = 500;
/// The maximum size of a page. A larger page is requested again with fewer objects: 500 pods of the
/// largest size have 750 MB, ordinary ones 2 MB.
const PAGE_BYTES: usize = 16 << 20;
/// The deadline of a page, or of the start of a watch: the API server's own.
const DEADLINE: Duration = Duration::from_secs(60);

/// The API server no longer has the changes since the requested version.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Gone(String);

pub(super) async fn pages<K: Watchable>(
    client: &Client,
    mut each: impl FnMut(Decoded<K>),
) -> Result<String> {
    let (mut params, mut size) = (ListParams::default(), PAGE_OBJECTS);
    loop {
        params.limit = Some(size);
        let request = Request::new(K::url_path(&(), None)).list(&params)?;
        let most = if size > 1 { PAGE_BYTES } else { usize::MAX };
        let page = within_deadline(async {
            let body = send(client, request, watched::PROTOBUF).await?;
            match Limited::new(body, most).collect().await {
                Ok(page) => Ok(Some(watched::list(page.to_bytes())?)),
                Err(error) if error.is::<LengthLimitError>() => Ok(None),
                Err(error) => Err(anyhow!(error)),
            }
        });
        let Some(page) = page.await? else {
            size = (size / 8).max(1);
            continue;
        };
        for item in page.items {
            each(watched::object(item));
        }
        size = (size * 2).min(PAGE_OBJECTS);
        if page.metadata.continue_.is_empty() {
            return Ok(page.metadata.resource_version);
        }
        params.continue_token = Some(page.metadata.continue_);
    }
}

pub(super) async fn within_deadline<T>(answer: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(DEADLINE, answer).await {
        Ok(answer) => answer,
        Err(_) => bail!("the API server did not answer within {DEADLINE:?}"),
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
    // Before authentication the API server answers in JSON or text.
    let status = watched::status(body.clone()).unwrap_or_else(|_| Status {
        code: code.as_u16().into(),
        message: String::from_utf8_lossy(&body).trim().to_owned(),
        ..Status::default()
    });
    Err(error_from(status))
}

pub(super) fn error_from(status: Status) -> anyhow::Error {
    let message = format!("{} ({} {})", status.message, status.code, status.reason);
    match status.code {
        410 => Gone(message).into(),
        _ => anyhow::anyhow!(message),
    }
}
