//! The stream to one replica of the provider. The replica sends commands, and the agent reports
//! changes.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tautline_agent_link::{Dialer, Provider, keep_open, refused};
use tautline_proto::latency::{
    FromAgent, Hello, Probed, Report, Throughput, ToAgent, Transferred,
    agents_client::AgentsClient, from_agent, to_agent,
};
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    time::{MissedTickBehavior, interval, sleep_until, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Streaming, transport::Channel};

use crate::{
    measure::{Command, Shared},
    probe::Prober,
    report::{DeltaReporter, split_message},
    targets::{Replica, Target, TargetList},
    throughput::{Test, ThroughputInitiator},
};

/// The time between two regular reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);
/// The minimum time between two urgent reports, of pairs that became unreachable or reachable.
const MIN_URGENT_INTERVAL: Duration = Duration::from_millis(500);
/// The time within which a replica must take a message or open a stream.
const DEADLINE: Duration = Duration::from_secs(10);
/// The minimum time between two messages that the agent reads.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(10);

pub struct StreamContext {
    pub hello: Hello,
    pub shared: Arc<Shared>,
    pub dialer: Dialer,
    pub prober: Prober,
    pub source: ThroughputInitiator,
    pub orders: Sender<Command>,
}

pub async fn follow(
    agent: Arc<StreamContext>,
    provider: Provider,
    replica: Replica,
    stop: CancellationToken,
) {
    let open = || session(&agent, &provider, replica);
    keep_open(&provider, replica.1, &stop, open).await;
    // The measuring task may have ended first.
    _ = agent.orders.send(Command::Forget(replica)).await;
}

struct OpenStreamCount<'a>(&'a Shared);

impl<'a> OpenStreamCount<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.metrics.streams.inc();
        Self(shared)
    }
}

impl Drop for OpenStreamCount<'_> {
    fn drop(&mut self) {
        self.0.metrics.streams.dec();
    }
}

async fn open(
    agent: &StreamContext,
    channel: Channel,
    outgoing: Receiver<FromAgent>,
) -> Result<Streaming<ToAgent>> {
    let request = agent.dialer.authorized(ReceiverStream::new(outgoing))?;
    let mut client = AgentsClient::new(channel);
    let opened = timeout(DEADLINE, client.follow(request)).await;
    let opened = opened.context("the replica opened no stream in time")?;
    Ok(opened.map_err(refused)?.into_inner())
}

async fn session(agent: &Arc<StreamContext>, provider: &Provider, replica: Replica) -> Result<()> {
    let mut renewal = pin!(agent.dialer.renewal());
    let mut urgent = agent.shared.urgent.subscribe();
    let channel = agent.dialer.channel(provider, replica.1).await?;
    let (messages, outgoing) = mpsc::channel(32);
    let mut reporter = DeltaReporter::default();
    send(&messages, from_agent::What::Hello(agent.hello.clone())).await?;
    send_report(&messages, &agent.shared, &mut reporter).await?;
    let mut incoming = open(agent, channel, outgoing).await?;
    let _open = OpenStreamCount::new(&agent.shared);
    tracing::info!(%provider, address = %replica.1, "stream open");

    let mut ticks = interval(REPORT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Agents that were started together must not report together.
    ticks.reset_after(REPORT_INTERVAL.mul_f64(fastrand::f64()));
    let mut next = tokio::time::Instant::now();
    let mut hurry = next;
    // The end of the stream cancels the probes and tests that the replica requested.
    let stream_end = CancellationToken::new();
    let _stream_end = stream_end.clone().drop_guard();
    loop {
        let message = async {
            sleep_until(next).await;
            incoming.message().await
        };
        let urged = async {
            sleep_until(hurry).await;
            urgent.changed().await
        };
        tokio::select! {
            message = message => {
                next = tokio::time::Instant::now() + MIN_READ_INTERVAL;
                match message.map_err(refused)? {
                    Some(message) => handle(agent, replica, message, &messages, &stream_end).await?,
                    None => return Ok(()),
                }
            }
            _ = ticks.tick() => send_report(&messages, &agent.shared, &mut reporter).await?,
            result = urged => {
                result?;
                hurry = tokio::time::Instant::now() + MIN_URGENT_INTERVAL;
                send_report(&messages, &agent.shared, &mut reporter).await?;
            }
            () = &mut renewal => return Ok(()),
        }
    }
}

async fn send_report(
    messages: &Sender<FromAgent>,
    shared: &Shared,
    reporter: &mut DeltaReporter,
) -> Result<()> {
    let reports = reporter.messages(&shared.pairs.lock(), Instant::now());
    for pairs in reports {
        send(messages, from_agent::What::Report(Report { pairs })).await?;
    }
    Ok(())
}

async fn send(messages: &Sender<FromAgent>, what: from_agent::What) -> Result<()> {
    let message = FromAgent { what: Some(what) };
    match timeout(DEADLINE, messages.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => bail!("the stream is closed"),
        Err(_) => bail!("the replica takes no messages"),
    }
}

async fn handle(
    agent: &Arc<StreamContext>,
    replica: Replica,
    message: ToAgent,
    messages: &Sender<FromAgent>,
    stream_end: &CancellationToken,
) -> Result<()> {
    let (agent, messages) = (Arc::clone(agent), messages.clone());
    let answer = async move |what| {
        _ = send(&messages, what).await;
    };
    match message.what {
        // The message is of a later version of the protocol.
        None => {}
        Some(to_agent::What::Targets(targets)) => {
            let order = Command::Measure(replica, TargetList::from(targets));
            agent.orders.send(order).await?;
        }
        Some(to_agent::What::Probe(probe)) => {
            let probed = async move {
                for message in split_answer(agent.prober.run(probe).await) {
                    answer(message).await;
                }
            };
            tokio::spawn(stream_end.clone().run_until_cancelled_owned(probed));
        }
        Some(to_agent::What::Throughput(test)) => {
            let transferred = async move { answer(transferred(&agent, test).await).await };
            tokio::spawn(stream_end.clone().run_until_cancelled_owned(transferred));
        }
    }
    Ok(())
}

/// Splits an answer into messages: reports with the pairs that do not fit, then the answer.
fn split_answer(mut probed: Probed) -> Vec<from_agent::What> {
    let mut messages = Vec::new();
    while let Some(pairs) = split_message(&mut probed.pairs) {
        messages.push(from_agent::What::Report(Report { pairs }));
    }
    messages.push(from_agent::What::Probed(probed));
    messages
}

async fn transferred(agent: &StreamContext, test: Throughput) -> from_agent::What {
    let id = test.id;
    let figure = async {
        let target = test.target.as_ref().context("no target")?;
        let target = Target::try_from(target)?;
        let test = Test {
            to: target.address,
            key: target.secret.context("the target is outside the cluster")?,
            echo_id: agent.shared.echo.id(),
            max_bytes: test.max_bytes,
            max_millis: test.max_millis,
        };
        anyhow::Ok(agent.source.run(test).await?)
    };
    let (bits_per_second, error) = match figure.await {
        Ok(bits) => (bits, String::new()),
        Err(error) => (0, format!("{error:#}")),
    };
    from_agent::What::Transferred(Transferred {
        id,
        bits_per_second,
        error,
    })
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use tautline_proto::latency::Pair;

    use super::*;

    #[test]
    fn an_answer_of_many_pairs_fits_the_providers_bound() {
        let pair = |n: usize| Pair {
            node: format!("{n:0253}"),
            instance: format!("{:036}/{:064}", 1, 2),
            window_nanos: vec![u64::MAX; 3],
            p50_nanos: u64::MAX,
            p95_nanos: u64::MAX,
            samples: 60,
            age_millis: u32::MAX,
            refresh_millis: u32::MAX,
            connect: true,
            middle_half_nanos: u64::MAX,
            ..Pair::default()
        };
        let probed = Probed {
            id: 7,
            pairs: (0..1_024).map(pair).collect(),
        };
        let (mut sizes, mut pairs) = (Vec::new(), Vec::new());
        for what in split_answer(probed) {
            let message = FromAgent { what: Some(what) };
            sizes.push(message.encoded_len());
            match message.what {
                Some(from_agent::What::Report(report)) => pairs.extend(report.pairs),
                Some(from_agent::What::Probed(probed)) => {
                    assert_eq!((probed.id, sizes.len()), (7, 3), "it comes last");
                    pairs.extend(probed.pairs);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(sizes.iter().all(|s| *s <= 256 << 10), "{sizes:?}");
        pairs.sort_by(|a, b| a.node.cmp(&b.node));
        pairs.dedup();
        assert_eq!(pairs.len(), 1_024);
    }
}
