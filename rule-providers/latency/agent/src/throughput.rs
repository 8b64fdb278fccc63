//! Measures the throughput between two nodes: one agent sends bytes, and the other agent counts
//! them. A test needs the pair's key. An agent serves one test at a time, and a test stays within
//! the bounds of both agents.
//!
//! ```text
//! responder: 16 random bytes
//! initiator: echo id u64, bytes u64, HMAC-SHA256(pair key, the random bytes and both numbers)
//! initiator: the announced number of bytes, or fewer bytes and the end of the stream
//! responder: bytes taken u64, nanoseconds from first to last read u64, HMAC-SHA256 of both numbers
//! ```

use std::{net::SocketAddr, sync::Arc, time::Duration};

use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Mutex,
    time::{Instant, timeout, timeout_at},
};

use crate::{echo::Echo, in_flight::TIMEOUT, measure::ProbeContext};

/// The greatest number of bytes of one test.
const MAX_TEST_BYTES: u64 = 256 << 20;
/// The longest time that a test sends bytes.
const MAX_TEST_TIME: Duration = Duration::from_secs(5);
/// The minimum time between two tests that this agent starts.
const MIN_TEST_INTERVAL: Duration = Duration::from_secs(60);
const CHUNK_BYTES: usize = 64 << 10;
const TAG_BYTES: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum ThroughputError {
    #[error("throughput tests are off; start the agent with --throughput-tests")]
    Off,
    #[error("one a minute at the most")]
    TooSoon,
    #[error("the target does not answer in time")]
    Deadline,
    #[error("not proven by the pair's key")]
    Forged,
    #[error("no byte went through")]
    Nothing,
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

pub struct ThroughputResponder {
    echo: Arc<Echo<ProbeContext>>,
    busy: Mutex<()>,
}

impl ThroughputResponder {
    pub fn new(echo: Arc<Echo<ProbeContext>>) -> Self {
        Self {
            echo,
            busy: Mutex::const_new(()),
        }
    }

    /// Serves a connection. The client must first prove that it has the pair's key.
    pub async fn take(&self, mut stream: TcpStream) -> Result<(), ThroughputError> {
        let mut challenge = [0; 16];
        random(&mut challenge)?;
        let hello = async {
            stream.write_all(&challenge).await?;
            let mut head = [0; 16 + TAG_BYTES];
            stream.read_exact(&mut head).await?;
            Ok::<_, std::io::Error>(head)
        };
        let head = timeout(TIMEOUT, hello)
            .await
            .map_err(|_| ThroughputError::Deadline)??;
        let (fields, tag) = head.split_at(16);
        let (source, bytes) = (number(&fields[..8]), number(&fields[8..]));
        let message = [&challenge[..], fields].concat();
        let proven = |key: &hmac::Key| hmac::verify(key, &message, tag).is_ok();
        let key = self
            .echo
            .key_of(source, proven)
            .ok_or(ThroughputError::Forged)?;

        // Each of two tests at once would measure only a part of the throughput.
        let Ok(_alone) = self.busy.try_lock() else {
            return Err(ThroughputError::TooSoon);
        };
        let (deadline, mut buffer) = (
            Instant::now() + MAX_TEST_TIME + TIMEOUT,
            vec![0; CHUNK_BYTES],
        );
        let (mut taken, mut first, mut last) = (0_u64, None, Instant::now());
        while taken < bytes.min(MAX_TEST_BYTES) {
            match timeout_at(deadline, stream.read(&mut buffer)).await {
                Ok(Ok(count @ 1..)) => {
                    taken += count as u64;
                    last = Instant::now();
                    first.get_or_insert(last);
                }
                _ => break,
            }
        }
        let nanos = first.map_or(0, |first| (last - first).as_nanos());
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        let answer = [taken.to_be_bytes(), nanos.to_be_bytes()].concat();
        let tag = hmac::sign(&key, &answer);
        let answer = [&answer, tag.as_ref()].concat();
        let sent = timeout(TIMEOUT, stream.write_all(&answer)).await;
        Ok(sent.map_err(|_| ThroughputError::Deadline)??)
    }
}

pub struct ThroughputInitiator {
    allowed: bool,
    last: parking_lot::Mutex<Option<Instant>>,
}

pub struct Test {
    pub to: SocketAddr,
    pub key: Arc<hmac::Key>,
    pub echo_id: u64,
    pub max_bytes: u64,
    pub max_millis: u32,
}

impl ThroughputInitiator {
    pub fn new(allowed: bool) -> Self {
        Self {
            allowed,
            last: parking_lot::Mutex::new(None),
        }
    }

    /// Runs a test, and returns the throughput in bits per second.
    pub async fn run(&self, test: Test) -> Result<u64, ThroughputError> {
        if !self.allowed {
            return Err(ThroughputError::Off);
        }
        {
            let (mut last, now) = (self.last.lock(), Instant::now());
            if last.is_some_and(|last| now.saturating_duration_since(last) < MIN_TEST_INTERVAL) {
                return Err(ThroughputError::TooSoon);
            }
            *last = Some(now);
        }
        let within = Duration::from_millis(test.max_millis.into()).min(MAX_TEST_TIME);
        let all = within + 3 * TIMEOUT;
        timeout(all, send(test, within))
            .await
            .map_err(|_| ThroughputError::Deadline)?
    }
}

async fn send(test: Test, within: Duration) -> Result<u64, ThroughputError> {
    let connected = timeout(TIMEOUT, TcpStream::connect(test.to)).await;
    let mut stream = connected.map_err(|_| ThroughputError::Deadline)??;
    let mut challenge = [0; 16];
    let heard = timeout(TIMEOUT, stream.read_exact(&mut challenge)).await;
    heard.map_err(|_| ThroughputError::Deadline)??;
    let bytes = test.max_bytes.min(MAX_TEST_BYTES);
    let fields = [test.echo_id.to_be_bytes(), bytes.to_be_bytes()].concat();
    let tag = hmac::sign(&test.key, &[&challenge[..], &fields].concat());
    stream.write_all(&[&fields, tag.as_ref()].concat()).await?;

    let (deadline, mut left, mut chunk) = (Instant::now() + within, bytes, vec![0; CHUNK_BYTES]);
    random(&mut chunk)?;
    while left > 0 {
        let count = CHUNK_BYTES.min(usize::try_from(left).unwrap_or(CHUNK_BYTES));
        match timeout_at(deadline, stream.write(&chunk[..count])).await {
            Err(_) | Ok(Ok(0)) => break,
            Ok(count) => left -= count? as u64,
        }
    }
    stream.shutdown().await?;
    let mut answer = [0; 16 + TAG_BYTES];
    stream.read_exact(&mut answer).await?;
    let (fields, tag) = answer.split_at(16);
    hmac::verify(&test.key, fields, tag).map_err(|_| ThroughputError::Forged)?;
    let (taken, nanos) = (number(&fields[..8]), number(&fields[8..]));
    if taken == 0 || nanos == 0 || taken > bytes {
        return Err(ThroughputError::Nothing);
    }
    let bits = u128::from(taken) * 8 * 1_000_000_000 / u128::from(nanos);
    Ok(u64::try_from(bits).unwrap_or(u64::MAX))
}

fn random(bytes: &mut [u8]) -> std::io::Result<()> {
    let filled = SystemRandom::new().fill(bytes);
    filled.map_err(|_| std::io::Error::other("no random numbers"))
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use tautline_latency_protocol::{pair_key, signing_key};

    use super::*;
    use crate::metrics::Metrics;
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    async fn responder() -> (SocketAddr, impl Fn(u64) -> Test, CancellationToken) {
        let secret = [b'k'; 32];
        let echo = Echo::bind(SocketAddr::from(([127, 0, 0, 1], 0)), Metrics::default()).unwrap();
        echo.set_identity(Some(3), &[secret.to_vec()]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let sink = Arc::new(ThroughputResponder::new(Arc::new(echo)));
        tokio::spawn(crate::tcp::serve(listener, Some(sink), stop.clone()));
        let test = move |echo_id| {
            let key = pair_key(&signing_key(secret), 7);
            Test {
                to,
                key: Arc::new(signing_key(key)),
                echo_id,
                max_bytes: 4 << 20,
                max_millis: 2_000,
            }
        };
        (to, test, stop)
    }

    #[tokio::test]
    async fn a_test_gives_a_figure_and_another_must_wait() {
        let (to, test, stop) = responder().await;
        let source = ThroughputInitiator::new(true);
        assert!(source.run(test(7)).await.unwrap() > 0);
        assert!(matches!(
            source.run(test(7)).await,
            Err(ThroughputError::TooSoon)
        ));
        assert!(TcpStream::connect(to).await.is_ok());
        stop.cancel();
    }

    #[tokio::test]
    async fn without_the_key_or_leave_nothing_is_sent() {
        let (_, test, stop) = responder().await;
        let error = ThroughputInitiator::new(true)
            .run(test(8))
            .await
            .unwrap_err();
        assert!(matches!(error, ThroughputError::Io(_)), "{error}");
        let error = ThroughputInitiator::new(false)
            .run(test(7))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("--throughput-tests"), "{error}");
        stop.cancel();
    }
}
