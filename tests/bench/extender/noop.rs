//! A no-op extender: the minimum cost of the protocol, for tests/bench/scheduler-perf. It
//! relies on kube-scheduler's form of requests: `NodeNames` comes last, without escapes.

use std::{
    convert::Infallible,
    fmt::Write,
    hint::black_box,
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::providers::Providers;

static FILTERED: AtomicU64 = AtomicU64::new(0);
static PRIORITIZED: AtomicU64 = AtomicU64::new(0);

/// Serves until the process ends. Calls the two providers at these ports, if given.
pub fn serve(port: &str, shortlist: &str, providers: Option<[&str; 2]>) -> Result<()> {
    let port = port.parse().context("the port")?;
    let shortlist = shortlist.parse().context("the length of the shortlist")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let providers = providers.map(Providers::at).transpose()?;
        let address: SocketAddr = (Ipv4Addr::LOCALHOST, port).into();
        accept(TcpListener::bind(address).await?, shortlist, providers).await
    })
}

/// Returns the first `shortlist` names, with scores; with 0 all names, without scores. Calls
/// the providers with all names first.
pub async fn accept(
    listener: TcpListener,
    shortlist: usize,
    providers: Option<Providers>,
) -> Result<()> {
    // After freeing a block of this size, glibc reuses the memory of smaller blocks instead of
    // getting it from the kernel for each request (mallopt(3), M_MMAP_THRESHOLD).
    drop(black_box(vec![0u8; 16 << 20]));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let providers = providers.clone();
        let service = service_fn(move |request| handle(request, shortlist, providers.clone()));
        tokio::spawn(async move {
            // The scheduler closes its connections as it ends.
            _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn handle(
    request: Request<Incoming>,
    shortlist: usize,
    providers: Option<Providers>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = match request.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => Bytes::new(),
    };
    let body = std::str::from_utf8(&body).unwrap_or_default();
    let text = match path.as_str() {
        "/filter" => {
            if let Some(providers) = providers
                && let Err(error) = providers.call(names(body)).await
            {
                // Not counted: the benchmark ends with this error.
                let text = format!(r#"{{"error":"a provider: {:?}"}}"#, error.code());
                return Ok(Response::new(Full::new(text.into())));
            }
            FILTERED.fetch_add(1, Relaxed);
            [r#"{"nodenames":["#, first(names(body), shortlist), "]}"].concat()
        }
        "/prioritize" => {
            PRIORITIZED.fetch_add(1, Relaxed);
            scores(first(names(body), shortlist), shortlist)
        }
        "/metrics" => metrics(),
        _ => String::new(),
    };
    Ok(Response::new(Full::new(text.into())))
}

/// The content of the brackets of `NodeNames`.
fn names(body: &str) -> &str {
    // Only the pod comes before it, and quotes in its strings have a backslash.
    let list = body.split_once(r#""NodeNames":["#).map(|(_, list)| list);
    list.and_then(|list| list.split_once(']'))
        .map_or("", |(names, _)| names)
}

/// The first `count` names of a list; 0: all.
fn first(names: &str, count: usize) -> &str {
    if count == 0 {
        return names;
    }
    match names.match_indices(',').nth(count - 1) {
        Some((end, _)) => &names[..end],
        None => names,
    }
}

fn scores(names: &str, shortlist: usize) -> String {
    let mut text = String::with_capacity(2 * names.len() + 2);
    text.push('[');
    if shortlist > 0 {
        for (i, name) in names.split(',').enumerate() {
            let comma = if i > 0 { "," } else { "" };
            // Writing into memory does not fail.
            _ = write!(text, r#"{comma}{{"host":{name},"score":5}}"#);
        }
    }
    text.push(']');
    text
}

/// Request counters under the names of Tautline's extender.
fn metrics() -> String {
    let mut text = String::new();
    for (verb, count) in [("filter", &FILTERED), ("prioritize", &PRIORITIZED)] {
        let count = count.load(Relaxed);
        if count > 0 {
            let name = "tautline_extender_requests_total";
            _ = writeln!(text, r#"{name}{{verb="{verb}",status="200"}} {count}"#);
        }
    }
    text
}
