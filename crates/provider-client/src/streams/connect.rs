//! Keeps the stream to one provider open.

use std::{sync::Arc, time::Duration};

use tautline_proto::ruleprovider::rule_provider_client::RuleProviderClient;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, interval, sleep, timeout},
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Code;

use super::{ProviderStream, Target, stream::SILENCE_TIMEOUT};
use crate::{
    CallError,
    client::ProviderClient,
    error::{is_answer, status_text},
};

/// The time after which a provider that does not know the stream is asked again.
const UNSUPPORTED_PAUSE: Duration = Duration::from_secs(60);
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
pub(super) async fn run(client: ProviderClient, stream: Arc<ProviderStream>) {
    let provider = &stream.provider;
    let mut target = stream.target.subscribe();
    let (mut pause, mut turn, mut has_served) = (FIRST_PAUSE, 0, false);
    loop {
        let begun = Instant::now();
        let end = follow(&client, &stream, &mut target, turn, &mut has_served).await;
        stream.state.lock().end();
        stream.changed.notify_waiters();
        turn += 1;
        if begun.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        let are_several = target.borrow().endpoints.addresses.len() > 1;
        let wait = match end {
            End::Unused => break,
            End::Moved => continue,
            // Another one of the replicas may know the stream, or this one again once it leads.
            End::Unsupported if are_several || has_served => LONGEST_PAUSE,
            End::Unsupported => UNSUPPORTED_PAUSE,
            End::Broken(why) => {
                tracing::debug!(%provider, %why, "stream of costs is broken");
                let wait = pause;
                pause = (pause * 2).min(LONGEST_PAUSE);
                wait
            }
        };
        tokio::select! {
            () = sleep(wait) => {}
            _ = target.changed() => pause = FIRST_PAUSE,
        }
        if stream.state.lock().is_unused(Instant::now()) {
            break;
        }
    }
    let is_it = |_: &Arc<str>, known: &Arc<ProviderStream>| Arc::ptr_eq(known, &stream);
    client.0.streams.by_provider.remove_if(provider, is_it);
}

/// Runs one stream from its beginning to its end; sets `has_served` if the provider knows it.
async fn follow(
    client: &ProviderClient,
    stream: &ProviderStream,
    target: &mut watch::Receiver<Target>,
    turn: usize,
    has_served: &mut bool,
) -> End {
    let endpoints = target.borrow_and_update().endpoints.clone();
    let guard = match client.0.pool.admit(&endpoints, turn, false, None) {
        Ok(guard) => guard,
        Err(error) => return End::Broken(error.to_string()),
    };
    let connection = Arc::clone(&guard.connection);
    let max = client.config().max_answer_bytes;
    let mut rpc =
        RuleProviderClient::new(connection.channel.clone()).max_decoding_message_size(max);
    let (out, messages) = mpsc::unbounded_channel();
    client.0.streams.begin(stream, out);
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
    *has_served = true;
    guard.record(None);
    let metrics = &client.0.metrics;
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
