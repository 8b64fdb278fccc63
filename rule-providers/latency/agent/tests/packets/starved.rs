//! A responder without processor time must not look far away.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::world::{World, config, launch};

const MS: Duration = Duration::from_millis(1);
const PROVIDER: &str = "TEST_RESPONDER_PROVIDER";
const ADVERTISE: &str = "TEST_RESPONDER_ADVERTISE";

/// An agent in a process of its own, which ends with the test.
struct Process {
    child: Child,
    real: SocketAddr,
    _stdin: Option<ChildStdin>,
}

impl Process {
    fn start(world: &World, number: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "starved::responder", "--nocapture"])
            .env(PROVIDER, world.address.to_string())
            .env(ADVERTISE, world.relay.address(number).unwrap().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let real = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("listening ")?.1.parse().ok());
        Self {
            _stdin: child.stdin.take(),
            child,
            real: real.unwrap(),
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// No test of its own: what [`Process`] runs.
#[tokio::test(flavor = "multi_thread")]
async fn responder() {
    let (Ok(provider), Ok(advertise)) = (std::env::var(PROVIDER), std::env::var(ADVERTISE)) else {
        return;
    };
    let providers = [provider.parse().unwrap()];
    let agent = launch(config(1, &providers, advertise.parse().unwrap())).await;
    println!("\nlistening {}", agent.real);
    // Until the process that started it is gone.
    let gone = || std::io::stdin().read_line(&mut String::new());
    _ = tokio::task::spawn_blocking(gone).await.unwrap();
}

/// Stops a process for 40 ms of every 50.
fn starve(pid: Pid, done: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        while !done.load(Ordering::Relaxed) {
            kill(pid, Signal::SIGSTOP).unwrap();
            std::thread::sleep(40 * MS);
            kill(pid, Signal::SIGCONT).unwrap();
            std::thread::sleep(10 * MS);
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_starved_responder_looks_no_farther_away() {
    let world = World::with(2, 1).await;
    let process = Process::start(&world, 1);
    world.relay.attach(1, process.real);
    for number in [0, 1] {
        world.connected(number).await;
        world.targets(number, &[], &[]).await;
    }
    world.relay.set_round_trip(0, 1, 5 * MS);
    let sixty = async |instance: &str| {
        let target = tautline_proto::latency::Target {
            instance: instance.to_owned(),
            ..world.target(0, 1, false)
        };
        for _ in 0..60 {
            let targets = vec![target.clone()];
            let (pairs, _) = world.probe(0, targets, 5, 1_000 * MS).await;
            if pairs.first().is_some_and(|pair| pair.samples == 60) {
                return pairs[0].clone();
            }
        }
        panic!("never 60 samples\n{}", world.provider.state());
    };
    let fed = sixty("fed").await;
    let before = world.relay.round_trips(0, 1).len();
    let done = Arc::new(AtomicBool::new(false));
    let thread = starve(process.pid(), Arc::clone(&done));
    let starved = sixty("starved").await;
    done.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    // A busy machine's network is slower itself.
    let mut did = world.relay.round_trips(0, 1).split_off(before);
    did.sort();
    let did = did[did.len() / 2];
    eprintln!(
        "fed: p50 {} us, p95 {} us; starved: the network's median {did:?}, p50 {} us, p95 {} us",
        fed.p50_nanos / 1_000,
        fed.p95_nanos / 1_000,
        starved.p50_nanos / 1_000,
        starved.p95_nanos / 1_000,
    );
    let p50 = Duration::from_nanos(starved.p50_nanos);
    assert!(p50 <= did.mul_f64(1.1), "{did:?}: {starved:?}\n{fed:?}");
}
