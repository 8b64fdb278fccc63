//! Keeps the stream to one provider open.

use std::{sync::Arc, time::Duration};

use tautline_proto::ruleprovider::rule_provider_client::RuleProviderClient;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, interval, sleep, timeout},
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Code;

use super::{ProviderStream, Streams, Target, stream::SILENCE_TIMEOUT};
use crate::{
    CallError,
    error::{is_answer, status_text},
};

/// The first pause after a replica that does not serve the stream; it doubles each time.
const FIRST_UNSUPPORTED_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_UNSUPPORTED_PAUSE: Duration = Duration::from_secs(60);
/// The first pause after a broken stream; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The time between two searches for questions that no pod asks.
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
pub(super) async fn run(streams: Arc<Streams>, stream: Arc<ProviderStream>) {
    let provider = &stream.provider;
    let mut target = stream.target.subscribe();
    let (mut pause, mut turn) = (FIRST_PAUSE, 0);
    let mut unsupported_pause = FIRST_UNSUPPORTED_PAUSE;
    loop {
        let begun = Instant::now();
        let end = follow(&streams, &stream, &mut target, turn).await;
        stream.state.lock().end();
        stream.changed.notify_waiters();
        turn += 1;
        if begun.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        let wait = match end {
            End::Unused => break,
            End::Moved => continue,
            // Another replica may serve the stream, or this one once it leads.
            End::Unsupported => {
                let wait = unsupported_pause;
                unsupported_pause = (wait * 2).min(LONGEST_UNSUPPORTED_PAUSE);
                wait
            }
            End::Broken(why) => {
                tracing::debug!(%provider, %why, "stream of costs is broken");
                let wait = pause;
                pause = (pause * 2).min(LONGEST_PAUSE);
                unsupported_pause = FIRST_UNSUPPORTED_PAUSE;
                wait
            }
        };
        tokio::select! {
            () = sleep(wait) => {}
            _ = target.changed() => {
                (pause, unsupported_pause) = (FIRST_PAUSE, FIRST_UNSUPPORTED_PAUSE);
            }
        }
        if stream.state.lock().is_unused(Instant::now()) {
            break;
        }
    }
    let is_it = |_: &Arc<str>, known: &Arc<ProviderStream>| Arc::ptr_eq(known, &stream);
    streams.by_provider.remove_if(provider, is_it);
}

/// Runs one stream from its beginning to its end, on a connection of its own: behind one address
/// another replica may serve it.
async fn follow(
    streams: &Streams,
    stream: &ProviderStream,
    target: &mut watch::Receiver<Target>,
    turn: usize,
) -> End {
    let endpoints = target.borrow_and_update().endpoints.clone();
    let guard = match streams.pool.admit(&endpoints, turn, false, None) {
        Ok(guard) => guard,
        Err(error) => return End::Broken(error.to_string()),
    };
    let connection = Arc::clone(&guard.connection);
    let channel = match streams.pool.channel(&connection.address, &endpoints) {
        Ok(channel) => channel,
        Err(error) => return End::Broken(error.to_string()),
    };
    let max = streams.config.max_answer_bytes;
    let mut rpc = RuleProviderClient::new(channel).max_decoding_message_size(max);
    let (out, messages) = mpsc::unbounded_channel();
    streams.begin(stream, out);
    let opening = rpc.watch_costs(UnboundedReceiverStream::new(messages));
    let mut updates = match timeout(SILENCE_TIMEOUT, opening).await {
        Err(_) => return End::Broken(format!("{} is silent", connection.address)),
        Ok(Err(status)) if status.code() == Code::Unimplemented => {
            guard.record(None);
            return End::Unsupported;
        }
        Ok(Err(status)) => {
            let error = CallError::new(&connection.address, &status);
            guard.record((!is_answer(&status)).then_some(&error));
            return End::Broken(error.to_string());
        }
        Ok(Ok(response)) => response.into_inner(),
    };
    guard.record(None);
    let metrics = &streams.metrics;
    metrics.streams.inc();
    let mut ticks = interval(UNUSED_INTERVAL);
    let mut questions = 0;
    let end = loop {
        let update = tokio::select! {
            update = timeout(SILENCE_TIMEOUT, updates.message()) => update,
            _ = target.changed() => {
                let now = target.borrow_and_update();
                if now.endpoints.allow(&connection.address, &endpoints) {
                    continue;
                }
                break End::Moved;
            }
            _ = ticks.tick() => {
                let (now, mut state) = (Instant::now(), stream.state.lock());
                state.close_unused(now);
                let open = i64::try_from(state.open_questions()).unwrap_or(i64::MAX);
                metrics.stream_questions.inc_by(open - questions);
                questions = open;
                if state.is_unused(now) {
                    break End::Unused;
                }
                continue;
            }
        };
        let why = match update {
            Ok(Ok(Some(update))) => {
                stream.state.lock().apply(update, Instant::now());
                stream.changed.notify_waiters();
                continue;
            }
            Ok(Ok(None)) => "the provider ended it".to_owned(),
            Ok(Err(status)) => status_text(&status),
            Err(_) => "the provider is silent".to_owned(),
        };
        metrics.stream_breaks.inc();
        break End::Broken(why);
    };
    metrics.streams.dec();
    metrics.stream_questions.dec_by(questions);
    end
}
