//! A server without file descriptors, in its own process because of the limit.

// The lint does not count helpers of tests as tests.
#![allow(clippy::unwrap_used)]

use std::{
    io::{Read, Write},
    time::Duration,
};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tautline_serve::http::{Limits, Port, PortMetrics, serve, text};
use tokio_util::sync::CancellationToken;

#[test]
fn port_makes_room_when_file_descriptors_run_out() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let port = Port::new(Limits::default(), 1 << 20, PortMetrics::default());
    let mut clients: Vec<_> = (0..40)
        .map(|_| std::net::TcpStream::connect(address).unwrap())
        .collect();
    let used = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, used + 10, hard).unwrap();

    let stop = CancellationToken::new();
    let until = stop.clone();
    let server = std::thread::spawn(move || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let handle = |_| async { text(200, "ok") };
            serve(listener, None, handle, port, until).await.unwrap();
        });
    });
    let mut last = clients.pop().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    last.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut answer = [0; 12];
    last.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    stop.cancel();
    drop(clients);
    drop(last);
    server.join().unwrap();
}
