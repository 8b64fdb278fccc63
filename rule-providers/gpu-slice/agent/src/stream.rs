//! The stream to one replica of a provider, on which the agent reports the use of its node's cards
//! at each reading.

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

/// The time in which a replica must take a message or open a stream.
const DEADLINE: Duration = Duration::from_secs(10);
/// The shortest time between two reports; readings come every 2 s, and at once when a card fails.
const MIN_REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// The age at which a measurement no longer describes the present use, so that it is not reported.
const MAX_MEASUREMENT_AGE: Duration = Duration::from_secs(10);
/// The longest time without a message; a replica closes streams that are silent for 30 s.
const MAX_SILENCE: Duration = Duration::from_secs(10);

/// The state that all streams share.
pub(crate) struct StreamContext {
    /// The name of the agent's node.
    pub node: String,
    pub dialer: Dialer,
    pub uses: watch::Receiver<Option<Measured>>,
    /// The number of open streams.
    pub streams: Gauge,
}

/// Keeps a stream to each replica of a provider open, until `stop`.
pub(crate) async fn follow_provider(
    context: Arc<StreamContext>,
    provider: Provider,
    stop: CancellationToken,
) -> Result<()> {
    let to = provider.clone();
    follow_replicas(provider, stop, move |address, stop| {
        let (context, provider) = (Arc::clone(&context), to.clone());
        async move {
            let open = || session(&context, &provider, address);
            keep_open(&provider, address, &stop, open).await;
        }
    })
    .await
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
            sleep_until(sent + MIN_REPORT_INTERVAL).await;
            uses.changed().await
        };
        tokio::select! {
            message = incoming.message() => match message.map_err(refused)? {
                // A provider of a later version may send messages; they are ignored.
                Some(_) => {}
                None => return Ok(()),
            },
            changed = changed => {
                changed.context("the agent stops")?;
                send(&messages, fresh(&mut uses)).await?;
                sent = Instant::now();
            }
            () = sleep_until(sent + MAX_SILENCE) => {
                send(&messages, None).await?;
                sent = Instant::now();
            }
            () = &mut renewal => return Ok(()),
        }
    }
}

fn fresh(uses: &mut watch::Receiver<Option<Measured>>) -> Option<What> {
    let measured = uses.borrow_and_update().clone()?;
    (measured.at.elapsed() < MAX_MEASUREMENT_AGE).then(|| What::Use((*measured.used).clone()))
}

/// Sends a message; `None` sends an empty one as a sign of life.
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
