mod bounds;
mod directions;
mod freshness;
mod losses;

use proptest::prelude::*;
use tautline_proto::latency::State;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: u64 = 1_000_000;

fn hello(node: &str, boot: &str) -> Hello {
    Hello {
        node: node.into(),
        boot_id: boot.into(),
        address: "10.0.0.1:5310".into(),
        nic_bits_per_second: 10,
        ..Hello::default()
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
        losses: 0,
        connect: false,
    }
}

fn lost(to: &str) -> Pair {
    Pair {
        state: State::Unreachable.into(),
        window_nanos: vec![],
        losses: 3,
        ..pair(to, 1)
    }
}

/// A ledger with these nodes, and the streams of their agents.
fn with(nodes: &[&str]) -> (Ledger, Vec<(Id, u64)>) {
    let mut ledger = Ledger::default();
    let join = |n: &&str| ledger.join(&format!("uid-{n}"), &hello(n, "boot"), Duration::ZERO);
    let streams = nodes.iter().map(join).collect();
    (ledger, streams)
}

fn state(reading: &Reading) -> &'static str {
    match reading {
        Reading::Fresh(_) => "fresh",
        Reading::Unreachable { .. } => "unreachable",
        Reading::Old(_) => "old",
        Reading::Nothing => "nothing",
    }
}

proptest! {
    /// Whatever comes: readings are the same both ways, links go both ways, and
    /// readings only age as time goes by.
    #[test]
    fn always_consistent(steps in proptest::collection::vec((0usize..6, 0usize..6, 0u64..5, 0u32..9, 0u64..100), 0..60)) {
        let names = ["a", "b", "c", "d", "e", "f"];
        let (mut ledger, mut of) = with(&names);
        let mut now = Duration::ZERO;
        for (from, to, what, state, seconds) in steps {
            now += Duration::from_secs(seconds);
            let (id, stream) = of[from];
            match what {
                0 => of[from] = ledger.join(&format!("uid-{}", names[from]), &hello(names[from], "boot"), now),
                1 => ledger.leave(id, stream, state % 2 == 0, now),
                2 => {
                    let ids = ledger.ids();
                    ledger.sweep(&ids, now);
                }
                _ => {
                    let told = Pair { state: (state % 3) as i32, refresh_millis: state * 2000, ..pair(names[to], MILLI) };
                    ledger.report(id, &[told], now);
                }
            }
            for a in ledger.ids() {
                let instance = ledger.get(a).unwrap();
                for (to, _) in &instance.ways {
                    prop_assert!(ledger.get(*to).unwrap().sources.contains(&a));
                }
                for source in &instance.sources {
                    prop_assert!(ledger.measured(*source).contains(&a));
                }
                for (b, reading) in ledger.row(a, now) {
                    prop_assert_eq!(&reading, &ledger.reading(b, a, now));
                    let later = ledger.reading(b, a, now + Duration::from_secs(700));
                    prop_assert_eq!(later, Reading::Nothing);
                }
            }
        }
    }
}
