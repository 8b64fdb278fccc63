//! The stream to one replica of the provider: what is used, at each reading.

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use prometheus_client::metrics::gauge::Gauge;
use tautline_agent_link::{Dialer, Provider, follow_replicas, keep_open, refused};
use tautline_proto::gpu::{FromAgent, Hello, agents_client::AgentsClient, from_agent::What};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::usage::Measured;

/// For a replica to take a message, or to open a stream.
const DEADLINE: Duration = Duration::from_secs(10);
/// Between two reports; readings come each 2 s, and at once when a card fails.
const APART: Duration = Duration::from_millis(500);
/// A use of then says nothing of now.
const STALE: Duration = Duration::from_secs(10);
/// A replica closes streams that are silent for 30 s.
const SILENCE: Duration = Duration::from_secs(10);

/// What all streams share.
pub(crate) struct StreamContext {
    /// The name of the agent's node.
    pub node: String,
    pub dialer: Dialer,
    pub uses: watch::Receiver<Option<Measured>>,
    /// Open streams.
    pub streams: Gauge,
}

/// Keeps a stream to each replica of a provider, until stopped.
pub(crate) async fn follow_provider(
    context: Arc<StreamContext>,
    provider: Provider,
    stop: CancellationToken,
) -> Result<()> {
    let to = provider.clone();
    follow_replicas(provider, stop, move |address, stop| {
        follow(Arc::clone(&context), to.clone(), address, stop)
    })
    .await
}

async fn follow(
    context: Arc<StreamContext>,
    provider: Provider,
    address: SocketAddr,
    stop: CancellationToken,
) {
    let open = || session(&context, &provider, address);
    keep_open(&provider, address, &stop, open).await;
}

struct OpenStreamCount<'a>(&'a Gauge);

impl Drop for OpenStreamCount<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

async fn session(context: &StreamContext, provider: &Provider, address: SocketAddr) -> Result<()> {
    let mut renewal = pin!(context.dialer.renewal());
    let mut uses = context.uses.clone();
    let channel = context.dialer.channel(provider, address).await?;
    let (messages, outgoing) = mpsc::channel(4);
    let node = context.node.clone();
    send(&messages, Some(What::Hello(Hello { node }))).await?;
    send(&messages, fresh(&mut uses)).await?;
    let request = context.dialer.authorized(ReceiverStream::new(outgoing))?;
    let mut client = AgentsClient::new(channel);
    let opened = timeout(DEADLINE, client.follow(request)).await;
    let opened = opened.context("the replica opened no stream in time")?;
    let mut incoming = opened.map_err(refused)?.into_inner();
    context.streams.inc();
    let _open = OpenStreamCount(&context.streams);
    tracing::info!(%provider, %address, "stream open");

    let mut sent = Instant::now();
    loop {
        let changed = async {
            sleep_until(sent + APART).await;
            uses.changed().await
        };
        tokio::select! {
            message = incoming.message() => match message.map_err(refused)? {
                // Of a later version.
                Some(_) => {}
                None => return Ok(()),
            },
            changed = changed => {
                changed.context("the agent stops")?;
                send(&messages, fresh(&mut uses)).await?;
                sent = Instant::now();
            }
            () = sleep_until(sent + SILENCE) => {
                send(&messages, None).await?;
                sent = Instant::now();
            }
            () = &mut renewal => return Ok(()),
        }
    }
}

fn fresh(uses: &mut watch::Receiver<Option<Measured>>) -> Option<What> {
    let measured = uses.borrow_and_update().clone()?;
    (measured.at.elapsed() < STALE).then(|| What::Use((*measured.used).clone()))
}

/// `None`: only a sign of life.
async fn send(messages: &mpsc::Sender<FromAgent>, what: Option<What>) -> Result<()> {
    match timeout(DEADLINE, messages.send(FromAgent { what })).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => bail!("the stream is closed"),
        Err(_) => bail!("the replica takes no messages"),
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
