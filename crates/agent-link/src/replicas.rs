//! Keeps a stream to each replica of a provider: one to each address of the provider's name. Opens
//! a stream again whenever it ends.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, anyhow};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::dial::Provider;

/// The pause between look-ups while an address is known.
const LOOK_UP_INTERVAL: Duration = Duration::from_secs(10);
/// The first pause between look-ups while no address is known; it doubles each time. After an
/// install, the name resolves shortly after the agents start.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between look-ups while no address is known.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(2);
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that streams have to end after the stop.
const STREAMS_END_TIMEOUT: Duration = Duration::from_secs(3);
/// The number of look-ups in a row without an address after which its stream ends. One is not
/// enough, because DNS answers vary.
const MAX_MISSED_LOOK_UPS: u32 = 3;
const MAX_REPLICAS: usize = 16;
/// The shortest and the longest pause before a stream is opened again, without jitter.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// The lifetime of a stream after which the next pause is the shortest again.
const STABLE_STREAM_LIFETIME: Duration = Duration::from_secs(30);

struct Replica {
    address: SocketAddr,
    /// The number of look-ups in a row without the address.
    missed: u32,
    stop: CancellationToken,
}

/// Looks up the provider's name periodically, and runs a `stream` to each address, until `stop`. A
/// stream gets the token that tells it to end.
pub async fn follow_replicas<S>(
    provider: Provider,
    stop: CancellationToken,
    stream: impl Fn(SocketAddr, CancellationToken) -> S,
) -> Result<()>
where
    S: Future<Output = ()> + Send + 'static,
{
    let mut known = Vec::new();
    let mut streams = JoinSet::new();
    let (mut next, mut retry) = (Instant::now(), FIRST_RETRY_PAUSE);
    let mut warned: Option<Instant> = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = streams.join_next() => {
                ended.context("a stream's task")?;
                continue;
            }
            () = sleep_until(next) => {}
        }
        match look_up(&provider).await {
            Ok(found) => {
                for (address, stop) in changed(&mut known, &found, &stop) {
                    streams.spawn(stream(address, stop));
                }
            }
            Err(error) if warned.is_none_or(|at| at.elapsed() >= LOOK_UP_INTERVAL) => {
                warned = Some(Instant::now());
                let error = format!("{error:#}");
                tracing::warn!(%provider, error, "the name was not found; streams stay as they are");
            }
            Err(_) => {}
        }
        next = Instant::now() + pause(!known.is_empty(), &mut retry);
    }
    let ended = async { while streams.join_next().await.is_some() {} };
    _ = timeout(STREAMS_END_TIMEOUT, ended).await;
    Ok(())
}

fn pause(any_known: bool, retry: &mut Duration) -> Duration {
    if any_known {
        return LOOK_UP_INTERVAL;
    }
    let next = (*retry * 2).min(MAX_RETRY_PAUSE);
    std::mem::replace(retry, next)
}

fn changed(
    known: &mut Vec<Replica>,
    found: &[SocketAddr],
    stop: &CancellationToken,
) -> Vec<(SocketAddr, CancellationToken)> {
    for replica in known.iter_mut() {
        let there = found.contains(&replica.address);
        replica.missed = if there { 0 } else { replica.missed + 1 };
    }
    for gone in known.extract_if(.., |replica| replica.missed >= MAX_MISSED_LOOK_UPS) {
        gone.stop.cancel();
    }
    let mut new = Vec::new();
    for address in found {
        if known.len() < MAX_REPLICAS && known.iter().all(|replica| replica.address != *address) {
            let stop = stop.child_token();
            new.push((*address, stop.clone()));
            known.push(Replica {
                address: *address,
                missed: 0,
                stop,
            });
        }
    }
    new
}

async fn look_up(provider: &Provider) -> Result<Vec<SocketAddr>> {
    let name = (provider.host.as_str(), provider.port);
    let found = timeout(LOOK_UP_TIMEOUT, tokio::net::lookup_host(name)).await;
    let mut found: Vec<_> = found.context("no answer in time")??.collect();
    found.sort();
    found.dedup();
    Ok(found)
}

/// Runs `session` again and again until `stop`, with growing pauses in between. A session must end
/// when its stream ends.
pub async fn keep_open<S>(
    provider: &Provider,
    address: SocketAddr,
    stop: &CancellationToken,
    session: impl Fn() -> S,
) where
    S: Future<Output = Result<()>>,
{
    let mut pause = BACKOFF.0;
    loop {
        let start = Instant::now();
        let ended = tokio::select! {
            () = stop.cancelled() => return,
            ended = session() => ended,
        };
        if start.elapsed() > STABLE_STREAM_LIFETIME {
            pause = BACKOFF.0;
        }
        let wait = pause.mul_f64(0.5 + fastrand::f64());
        pause = (pause * 2).min(BACKOFF.1);
        match ended {
            Ok(()) => tracing::debug!(%provider, %address, "stream ended; opening another"),
            Err(error) => {
                tracing::warn!(%provider, %address, error = %format!("{error:#}"), "no stream");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(wait) => {}
        }
    }
}

/// Returns the error of a stream that a replica ended or refused.
pub fn refused(status: Status) -> anyhow::Error {
    anyhow!("the replica says {:?}: {}", status.code(), status.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn look_ups_are_frequent_until_an_address_is_known() {
        let mut retry = FIRST_RETRY_PAUSE;
        let millis: Vec<_> = (0..5)
            .map(|_| pause(false, &mut retry).as_millis())
            .collect();
        assert_eq!(millis, [250, 500, 1000, 2000, 2000]);
        assert_eq!(pause(true, &mut retry), LOOK_UP_INTERVAL);
    }

    #[test]
    fn new_addresses_are_followed_and_old_ones_left_when_they_stay_away() {
        let (mut known, stop) = (Vec::new(), CancellationToken::new());
        let first = changed(&mut known, &[address(1), address(2)], &stop);
        assert_eq!(first.len(), 2);
        for flap in [&[address(1)][..], &[], &[address(1), address(2)]] {
            assert!(changed(&mut known, flap, &stop).is_empty());
        }
        for _ in 0..MAX_MISSED_LOOK_UPS {
            assert!(!first[1].1.is_cancelled());
            changed(&mut known, &[address(1)], &stop);
        }
        assert!(first[1].1.is_cancelled() && !first[0].1.is_cancelled());
        assert_eq!(changed(&mut known, &[address(2)], &stop).len(), 1);
        let many: Vec<_> = (0..100).map(address).collect();
        changed(&mut known, &many, &stop);
        assert_eq!(known.len(), MAX_REPLICAS);
    }
}
