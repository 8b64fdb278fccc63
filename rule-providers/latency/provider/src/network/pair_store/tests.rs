mod bounds;
mod directions;
mod freshness;
mod losses;

use proptest::prelude::*;
use std::time::Duration;

use tautline_proto::latency::{Hello, Pair, State};

use super::*;
use crate::measurement::Measurement;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: u64 = 1_000_000;

fn hello(node: &str, boot: &str) -> Hello {
    Hello {
        node: node.into(),
        boot_id: boot.into(),
        address: "10.0.0.1:5310".into(),
        nic_bits_per_second: 10,
    }
}

fn pair(to: &str, nanos: u64) -> Pair {
    Pair {
        node: to.into(),
        instance: format!("uid-{to}/boot"),
        state: State::Measured.into(),
        window_nanos: vec![nanos; 3],
        p50_nanos: nanos,
        p95_nanos: nanos * 2,
        samples: 60,
        age_millis: 0,
        refresh_millis: 30_000,
        connect: false,
        middle_half_nanos: nanos / 5,
    }
}

fn lost(to: &str) -> Pair {
    Pair {
        state: State::Unreachable.into(),
        window_nanos: vec![],
        ..pair(to, 1)
    }
}

/// A store with these nodes, and the streams of their agents.
fn with(nodes: &[&str]) -> (PairStore, Vec<(InstanceId, u64)>) {
    let mut store = PairStore::default();
    let join = |n: &&str| store.join(&format!("uid-{n}"), &hello(n, "boot"), Duration::ZERO);
    let streams = nodes.iter().map(join).collect();
    (store, streams)
}

fn sweep(store: &mut PairStore, now: Duration) -> (PairCounts, Vec<InstanceId>) {
    let (ids, mut counts) = (store.ids(), PairCounts::default());
    let gone = store.sweep(&ids, now, &mut counts);
    (counts, gone)
}

fn state(measurement: &Measurement) -> &'static str {
    match measurement {
        Measurement::Fresh(_) => "fresh",
        Measurement::Unreachable { .. } => "unreachable",
        Measurement::Stale(_) => "stale",
        Measurement::Missing => "missing",
    }
}

proptest! {
    /// Whatever comes: measurements are the same both ways, links go both ways, and
    /// measurements only age as time goes by.
    #[test]
    fn always_consistent(steps in proptest::collection::vec((0usize..6, 0usize..6, 0u64..5, 0u32..9, 0u64..100), 0..60)) {
        let names = ["a", "b", "c", "d", "e", "f"];
        let (mut store, mut of) = with(&names);
        let mut now = Duration::ZERO;
        for (from, to, what, state, seconds) in steps {
            now += Duration::from_secs(seconds);
            let (id, stream) = of[from];
            match what {
                0 => of[from] = store.join(&format!("uid-{}", names[from]), &hello(names[from], "boot"), now),
                1 => store.leave(id, stream, state % 2 == 0, now),
                2 => {
                    sweep(&mut store, now);
                }
                _ => {
                    let report = Pair { state: (state % 3) as i32, refresh_millis: state * 2000, ..pair(names[to], MILLI) };
                    store.report(id, &[report], now);
                }
            }
            for a in store.ids() {
                let instance = store.get(a).unwrap();
                for (to, _) in &instance.targets {
                    prop_assert!(store.get(*to).unwrap().sources.contains(&a));
                }
                for source in &instance.sources {
                    prop_assert!(store.targets(*source).contains(&a));
                }
                for (b, measurement) in store.row(a, now) {
                    prop_assert_eq!(&measurement, &store.measurement(b, a, now));
                    let later = store.measurement(b, a, now + Duration::from_secs(700));
                    prop_assert_eq!(later, Measurement::Missing);
                }
            }
        }
    }
}
