//! Keeps the stream to one provider open.

use std::{sync::Arc, time::Duration};

use tautline_proto::ruleprovider::rule_provider_client::RuleProviderClient;
use tokio::{
    sync::mpsc,
    time::{Instant, interval, sleep, timeout},
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status};

use super::{ProviderStream, stream::SILENCE_TIMEOUT};
use crate::{call::call_error, client::ProviderClient, metrics::Metrics};

/// The time after which a provider that does not know the stream is asked again. A stream that no
/// pod has needed for this time ends.
const STREAM_RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// The first pause after a broken stream; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const UNUSED_INTERVAL: Duration = Duration::from_secs(10);

enum End {
    /// The provider does not know the stream.
    Unsupported,
    /// The provider no longer has this address, or demands TLS there.
    Moved,
    /// The stream is unused: pods have not asked for a long time.
    Unused,
    Broken(String),
}

/// Runs streams to one provider; ends when no pod has asked for a long time.
pub(super) async fn run(client: ProviderClient, stream: Arc<ProviderStream>) {
    let provider = &stream.provider;
    let (mut pause, mut turn) = (FIRST_PAUSE, 0);
    loop {
        let begun = Instant::now();
        let end = follow(&client, &stream, turn).await;
        stream.stream.lock().end();
        stream.changed.notify_waiters();
        turn += 1;
        if begun.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        let wait = match end {
            End::Unused => break,
            End::Moved => continue,
            // Another one of the replicas may know the stream.
            End::Unsupported if stream.target.lock().endpoints.are_several() => LONGEST_PAUSE,
            End::Unsupported => STREAM_RETRY_INTERVAL,
            End::Broken(why) => {
                tracing::debug!(%provider, %why, "stream of costs is broken");
                let wait = pause;
                pause = (pause * 2).min(LONGEST_PAUSE);
                wait
            }
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = stream.moved.notified() => pause = FIRST_PAUSE,
        }
        if stream.last_asked().elapsed() > STREAM_RETRY_INTERVAL {
            break;
        }
    }
    let is_it = |_: &Arc<str>, known: &Arc<ProviderStream>| Arc::ptr_eq(known, &stream);
    client.streams().by_provider.remove_if(provider, is_it);
}

/// Runs one stream from its beginning to its end.
async fn follow(client: &ProviderClient, stream: &ProviderStream, turn: usize) -> End {
    let endpoints = stream.target.lock().endpoints.clone();
    let guard = match endpoints.admit(client.pool(), turn) {
        Ok(guard) => guard,
        Err(error) => return End::Broken(error.to_string()),
    };
    let connection = Arc::clone(&guard.connection);
    let max = client.config().max_answer_bytes;
    let mut rpc =
        RuleProviderClient::new(connection.channel.clone()).max_decoding_message_size(max);
    let (out, messages) = mpsc::unbounded_channel();
    client.streams().begin(stream, out);
    let opening = rpc.watch_costs(UnboundedReceiverStream::new(messages));
    let mut updates = match timeout(SILENCE_TIMEOUT, opening).await {
        Err(_) => return End::Broken(format!("{} is silent", connection.address)),
        Ok(Err(status)) if status.code() == Code::Unimplemented => {
            guard.record(true, None);
            return End::Unsupported;
        }
        Ok(Err(status)) => {
            let error = call_error(&connection.address, &status);
            // A status from the wire has no source: the provider is well.
            let is_well = std::error::Error::source(&status).is_none();
            guard.record(is_well, Some(&error));
            return End::Broken(error.to_string());
        }
        Ok(Ok(response)) => response.into_inner(),
    };
    guard.record(true, None);
    let mut counted = CountedStream::new(client.metrics());
    let mut ticks = interval(UNUSED_INTERVAL);
    loop {
        let update = tokio::select! {
            update = timeout(SILENCE_TIMEOUT, updates.message()) => update,
            () = stream.moved.notified() => {
                let now = stream.target.lock().endpoints.clone();
                if now.allow(&connection.address, &endpoints) {
                    continue;
                }
                return End::Moved;
            }
            _ = ticks.tick() => {
                let mut state = stream.stream.lock();
                state.close_unused(Instant::now());
                counted.set_questions(state.open_questions());
                if stream.last_asked().elapsed() > STREAM_RETRY_INTERVAL {
                    return End::Unused;
                }
                continue;
            }
        };
        match update {
            Ok(Ok(Some(update))) => {
                stream.stream.lock().apply(update, Instant::now());
                stream.changed.notify_waiters();
            }
            Ok(Ok(None)) => return counted.broken("the provider ended it".to_owned()),
            Ok(Err(status)) => return counted.broken(text(&status)),
            Err(_) => return counted.broken("the provider is silent".to_owned()),
        }
    }
}

/// An open stream in the metrics.
struct CountedStream<'a> {
    metrics: &'a Metrics,
    questions: i64,
}

impl<'a> CountedStream<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        metrics.stream_begun();
        let questions = 0;
        Self { metrics, questions }
    }

    fn set_questions(&mut self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.questions_opened(count - self.questions);
        self.questions = count;
    }

    fn broken(&self, why: String) -> End {
        self.metrics.stream_broken();
        End::Broken(why)
    }
}

impl Drop for CountedStream<'_> {
    fn drop(&mut self) {
        self.set_questions(0);
        self.metrics.stream_ended();
    }
}

fn text(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}
