use std::{
    sync::mpsc::{self, Receiver},
    thread::JoinHandle,
};

use proptest::prelude::*;

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

/// An echo with its thread, which ends with the test.
struct Running {
    echo: Arc<Echo<u32>>,
    metrics: Metrics,
    replies: Receiver<Reply<u32>>,
    stop: CancellationToken,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Running {
    fn start(id: u64) -> Self {
        Self::at("127.0.0.1:0", id).unwrap()
    }

    fn at(listen: &str, id: u64) -> io::Result<Self> {
        let metrics = Metrics::default();
        let echo = Echo::bind(listen.parse().unwrap(), metrics.clone())?;
        let echo = Arc::new(echo);
        echo.set_identity(Some(id), &[b"new".to_vec(), b"old".to_vec()]);
        let stop = CancellationToken::new();
        let (sender, replies) = mpsc::channel();
        let thread = std::thread::spawn({
            let (echo, stop) = (Arc::clone(&echo), stop.clone());
            move || echo.serve(&stop, |reply| _ = sender.send(reply))
        });
        Ok(Self {
            echo,
            metrics,
            replies,
            stop,
            thread: Some(thread),
        })
    }

    fn address(&self) -> SocketAddr {
        self.echo.address().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

fn key_of(responder: &[u8], initiator: u64) -> Arc<hmac::Key> {
    Arc::new(signing_key(pair_key(&signing_key(responder), initiator)))
}

fn until(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !check() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

fn raw() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn request(source: u64, sequence: u64) -> Packet {
    Packet {
        kind: Kind::Request,
        source,
        session: 3,
        sequence,
        dwell: Duration::ZERO,
    }
}

#[test]
fn an_echo_gives_a_sample_by_either_key() {
    let (a, b) = (Running::start(1), Running::start(2));
    for (n, key) in [b"new", b"old"].into_iter().enumerate() {
        let key = key_of(key, 1);
        a.echo.send_request(b.address(), &key, n as u32).unwrap();
        let reply = a.replies.recv_timeout(PATIENCE).unwrap();
        assert_eq!(reply.what, n as u32);
        // On a busy machine the sender may have been put aside: refused, no sample.
        if let Ok(round_trip) = reply.round_trip {
            assert!(round_trip < Duration::from_secs(1));
        }
    }
    until("both are counted", || b.metrics.answered.get() == 2);
    assert_eq!(a.metrics.sent.get(), 2);
    assert_eq!(a.echo.expire(Instant::now() + PATIENCE).len(), 0);
}

#[test]
fn a_socket_of_both_families_asks_and_answers_either() {
    let (Ok(a), Ok(b)) = (Running::at("[::]:0", 1), Running::at("[::]:0", 2)) else {
        eprintln!("skipped: this machine has no IPv6");
        return;
    };
    for ip in ["127.0.0.1", "::1"] {
        let to = SocketAddr::new(ip.parse().unwrap(), b.address().port());
        a.echo.send_request(to, &key_of(b"new", 1), 1).unwrap();
        assert_eq!(a.replies.recv_timeout(PATIENCE).unwrap().what, 1);
    }
}

#[test]
fn replays_and_forgeries_are_counted_and_not_answered() {
    let responder = Running::start(1);
    let socket = raw();
    let key = key_of(b"new", 9);
    let one = request(9, 1).seal(&key);
    for bytes in [one, one, one] {
        socket.send_to(&bytes, responder.address()).unwrap();
    }
    // Another's key, another's name, no packet at all.
    let forged = [
        request(9, 2).seal(&key_of(b"other", 9)),
        request(8, 3).seal(&key),
    ];
    for bytes in forged {
        socket.send_to(&bytes, responder.address()).unwrap();
    }
    socket.send_to(&one[..20], responder.address()).unwrap();
    let last = request(9, 4).seal(&key);
    socket.send_to(&last, responder.address()).unwrap();

    // Replies are in order: between the first and the last there is none.
    for sequence in [1, 4] {
        let mut buffer = [0; 200];
        let (length, _) = socket.recv_from(&mut buffer).unwrap();
        let (reply, bytes) = Packet::parse(&buffer[..length]).unwrap();
        assert_eq!((length, reply.kind), (PACKET_BYTES, Kind::Reply));
        assert_eq!(
            (reply.source, reply.session, reply.sequence),
            (9, 3, sequence)
        );
        assert!(is_authentic(bytes, &key));
    }
    let metrics = &responder.metrics;
    assert_eq!((metrics.replayed.get(), metrics.forged.get()), (2, 2));
    until("both are counted", || metrics.answered.get() == 2);
    assert_eq!(metrics.malformed.get(), 1);
}

#[test]
fn replies_count_once_and_from_the_requested_address() {
    let asker = Running::start(1);
    let (responder, other) = (raw(), raw());
    let key = key_of(b"new", 1);
    asker
        .echo
        .send_request(responder.local_addr().unwrap(), &key, 5)
        .unwrap();
    let mut buffer = [0; PACKET_BYTES];
    let (_, from) = responder.recv_from(&mut buffer).unwrap();
    let (request, _) = Packet::parse(&buffer).unwrap();
    let reply = Packet {
        kind: Kind::Reply,
        ..request
    };
    other.send_to(&reply.seal(&key), from).unwrap();
    responder
        .send_to(&reply.seal(&key_of(b"x", 1)), from)
        .unwrap();
    until("neither counts", || {
        asker.metrics.replayed.get() == 1 && asker.metrics.forged.get() == 1
    });
    assert!(asker.replies.try_recv().is_err());
    for _ in 0..3 {
        responder.send_to(&reply.seal(&key), from).unwrap();
    }
    assert_eq!(asker.replies.recv_timeout(PATIENCE).unwrap().what, 5);
    until("copies are refused", || asker.metrics.replayed.get() == 3);
    assert!(asker.replies.try_recv().is_err());
}

#[test]
fn excess_requests_are_limited_and_counted() {
    let responder = Running::start(1);
    let (socket, key) = (raw(), key_of(b"new", 9));
    for sequence in 1..=2_000 {
        socket
            .send_to(&request(9, sequence).seal(&key), responder.address())
            .unwrap();
        // As fast as it takes them: a full buffer would drop some.
        let metrics = &responder.metrics;
        until("each is answered or limited", || {
            metrics.answered.get() + metrics.limited.get() == sequence
        });
    }
    let answered = responder.metrics.answered.get();
    assert!((400..1_000).contains(&answered), "{answered}");
    assert_eq!(responder.metrics.limited.get(), 2_000 - answered);
}

#[test]
fn agent_without_an_echo_id_sends_no_requests() {
    let asker = Running::start(0);
    let error = asker
        .echo
        .send_request(asker.address(), &key_of(b"new", 0), 1);
    assert!(matches!(error, Err(SendError::Nameless)));
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn the_dwell_and_the_wait_are_no_part_of_the_time() {
    let zero = Duration::ZERO;
    assert_eq!(round_trip(5 * MS, Ok(MS), 2 * MS, zero), Ok(2 * MS));
    assert_eq!(
        round_trip(5 * MS, Err(Stepped), zero, zero),
        Err(RejectedSample::Clock)
    );
    assert_eq!(
        round_trip(5 * MS, Ok(6 * MS), zero, zero),
        Err(RejectedSample::Clock)
    );
    assert_eq!(
        round_trip(5 * MS, Ok(zero), UNKNOWN_DWELL, zero),
        Err(RejectedSample::Clock)
    );
    assert_eq!(
        round_trip(1_000 * MS, Ok(zero), 991 * MS, zero),
        Err(RejectedSample::Dishonest)
    );
    // A busy node, near by.
    assert_eq!(
        round_trip(20 * MS, Ok(zero), 19_900 * MS / 1_000, zero),
        Ok(MS / 10)
    );
    assert_eq!(
        round_trip(MS / 2, Ok(zero), MS * 48 / 100, zero),
        Ok(MS / 50)
    );
    assert_eq!(
        round_trip(MS, Ok(zero), MS, zero),
        Err(RejectedSample::Range)
    );
    assert_eq!(
        round_trip(MS, Ok(zero), 2 * MS, zero),
        Err(RejectedSample::Dishonest)
    );
    assert_eq!(
        round_trip(10_001 * MS, Ok(zero), zero, zero),
        Err(RejectedSample::Range)
    );
    let unsure = MS * 4 / 10;
    assert_eq!(
        round_trip(MS, Ok(zero), zero, unsure),
        Err(RejectedSample::Unsure)
    );
    assert_eq!(round_trip(5 * MS, Ok(zero), zero, unsure), Ok(5 * MS));
}

#[test]
fn no_clock_and_no_responder_makes_a_sample_longer_than_it_took() {
    proptest!(|(until: u64, waited: Option<u64>, dwell: u64, unsure: u64)| {
        let until = Duration::from_nanos(until);
        let waited = waited.map(Duration::from_nanos).ok_or(Stepped);
        let (dwell, unsure) = (Duration::from_nanos(dwell), Duration::from_nanos(unsure));
        if let Ok(rtt) = round_trip(until, waited, dwell, unsure) {
            prop_assert!(rtt <= until && rtt <= MAX_ROUND_TRIP && !rtt.is_zero());
        }
    });
}
