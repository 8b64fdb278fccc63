use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::Value;
use tautline_agent_link::SilentAgents;
use tautline_sdk::Compliance;

use super::{
    facts::{NodeZone, ReportSource},
    *,
};
use crate::rules::{
    hysteresis::Bounds,
    pair_state::{ActivePair, Quantity},
};

/// Nodes by zone, measured pairs with medians both ways, and what rules name.
#[derive(Default)]
struct World {
    nodes: BTreeMap<String, Option<String>>,
    medians: BTreeMap<(String, String), u64>,
    lost: BTreeSet<(String, String)>,
    estimates: Option<fn(&str, &str) -> u64>,
    demands: Vec<ActivePair>,
    lookups: AtomicUsize,
    rows: AtomicUsize,
}

fn pair(a: &str, b: &str) -> (String, String) {
    (a.to_owned(), b.to_owned())
}

impl World {
    fn of(nodes: &[(&str, &str)]) -> Self {
        let zone = |z: &str| (!z.is_empty()).then(|| z.to_owned());
        Self {
            nodes: nodes
                .iter()
                .map(|(n, z)| ((*n).to_owned(), zone(z)))
                .collect(),
            ..Self::default()
        }
    }

    fn measured(mut self, a: &str, b: &str, there: u64, back: u64) -> Self {
        self.medians.insert(pair(a, b), there);
        self.medians.insert(pair(b, a), back);
        self
    }

    fn unreachable(mut self, a: &str, b: &str) -> Self {
        self.lost.extend([pair(a, b), pair(b, a)]);
        self
    }

    fn named(mut self, a: &str, b: &str, request: Option<u64>, limit: Option<u64>) -> Self {
        self.demands.push(ActivePair {
            a: a.to_owned(),
            b: b.to_owned(),
            quantity: Quantity::Latency,
            bounds: Bounds { request, limit },
            level: None,
        });
        self
    }
}

impl ReportSource for World {
    fn nodes(&self) -> Vec<NodeZone> {
        let place = |(node, zone): (&String, &Option<String>)| NodeZone {
            node: node.clone(),
            zone: zone.clone(),
        };
        self.nodes.iter().map(place).collect()
    }

    fn end(&self, node: &str) -> Option<End> {
        let zone = self.nodes.get(node)?.clone();
        Some(End {
            node: node.to_owned(),
            zone,
            uid: format!("uid-{node}"),
            boot: Some("boot".to_owned()),
            agent: true,
            outside: false,
        })
    }

    fn silent_agents(&self) -> SilentAgents {
        SilentAgents::new(self.nodes.keys().map(|node| (&**node, None)))
    }

    fn with_rtts_to(&self, to: &str, visit: &mut dyn FnMut(&dyn Fn(&str) -> EffectiveRtt)) {
        self.rows.fetch_add(1, Ordering::Relaxed);
        visit(&|from| {
            self.lookups.fetch_add(1, Ordering::Relaxed);
            if from == to {
                return EffectiveRtt::new(Basis::Same, 0);
            }
            if self.lost.contains(&pair(from, to)) {
                return EffectiveRtt {
                    basis: Basis::Unreachable,
                    rtt_micros: None,
                };
            }
            let measured = self.combined_micros(from, to);
            let measured = measured.map(|m| EffectiveRtt::new(Basis::Measured, m));
            let estimated = || {
                let estimate = self.estimate(from, to);
                estimate.map(|e| EffectiveRtt::new(Basis::Estimated, e.rtt_micros))
            };
            measured.or_else(estimated).unwrap_or_default()
        });
    }

    fn direction(&self, from: &str, to: &str) -> Direction {
        let key = pair(from, to);
        let median = self.medians.get(&key).copied();
        let known = Direction {
            from: key.0.clone(),
            to: key.1.clone(),
            ..Direction::default()
        };
        match median {
            Some(median) => Direction {
                state: State::Measured,
                median_micros: Some(median),
                window_micros: vec![median; 3],
                p50_micros: Some(median),
                p95_micros: Some(median * 2),
                samples: 60,
                age_micros: Some(1_200_000),
                refresh_micros: Some(2_000_000),
                ..known
            },
            None if self.lost.contains(&key) => Direction {
                state: State::Unreachable,
                unreachable_micros: Some(90_000_000),
                ..known
            },
            None => known,
        }
    }

    fn combined_micros(&self, a: &str, b: &str) -> Option<u64> {
        let of = |a, b| self.medians.get(&pair(a, b));
        of(a, b).max(of(b, a)).copied()
    }

    fn estimate(&self, a: &str, b: &str) -> Option<Estimated> {
        let micros = self.estimates?(a, b);
        Some(Estimated {
            rtt_micros: micros,
            low_micros: micros * 9 / 10,
            high_micros: micros * 12 / 10,
        })
    }

    fn configured_micros(&self, _: &str, _: &str) -> Option<u64> {
        None
    }

    fn measured_with(&self, node: &str) -> Vec<Arc<str>> {
        let all = self.medians.keys().chain(&self.lost);
        let from = all.filter(|(a, _)| a == node);
        from.map(|(_, b)| b.as_str().into()).collect()
    }

    fn active_rules(&self) -> Vec<ActivePair> {
        self.demands.clone()
    }
}

fn two_zones() -> World {
    World::of(&[("a1", "a"), ("a2", "a"), ("b1", "b"), ("lone", "")])
        .measured("a1", "b1", 12_000, 15_000)
        .measured("a1", "a2", 200, 210)
        .unreachable("a2", "b1")
        .named("a1", "b1", Some(5_000), Some(20_000))
}

async fn answer(
    world: impl ReportSource + Send + Sync + 'static,
    path: &str,
    query: &str,
) -> (u16, String) {
    let pages = Pages::new(world);
    match pages.answer(path.to_owned(), query.to_owned()).await {
        Some(page) => (page.status, page.body),
        None => (0, String::new()),
    }
}

#[test]
fn a_pair_shows_all_that_is_known() {
    let mut world = two_zones();
    world.estimates = Some(|_, _| 13_000);
    let report = PairReport::of(&world, "a1", "b1").unwrap();
    insta::assert_snapshot!("pair", serde_json::to_string_pretty(&report).unwrap());
    let back: PairReport = serde_json::from_value(serde_json::to_value(&report).unwrap()).unwrap();
    assert_eq!(back, report);
    let same = PairReport::of(&world, "a1", "a1").unwrap();
    assert_eq!(
        (same.effective.basis, same.directions.len()),
        (Basis::Same, 0)
    );
    let lost = PairReport::of(&world, "a2", "b1").unwrap();
    assert_eq!(lost.effective.basis, Basis::Unreachable);
    assert_eq!(lost.directions[0].unreachable_micros, Some(90_000_000));
    assert!(lost.named_by.is_empty());
}

#[test]
fn zones_are_summed_up() {
    let report = MatrixReport::by_zone(&two_zones()).unwrap();
    insta::assert_snapshot!("zones", serde_json::to_string_pretty(&report).unwrap());
    let back: MatrixReport =
        serde_json::from_value(serde_json::to_value(&report).unwrap()).unwrap();
    assert_eq!(back, report);
}

#[test]
fn zones_of_thousands_of_nodes_ask_for_few_pairs() {
    let names: Vec<(String, String)> = (0..5000)
        .map(|i| (format!("n{i:04}"), format!("z{}", i % 10)))
        .collect();
    let names: Vec<(&str, &str)> = names
        .iter()
        .map(|(n, z)| (n.as_str(), z.as_str()))
        .collect();
    let mut world = World::of(&names).measured("n0000", "n0001", 900, 950);
    world.estimates = Some(|a, b| if a[4..] == b[4..] { 100 } else { 1000 });
    let report = MatrixReport::by_zone(&world).unwrap();
    assert_eq!(report.names.len(), 10);
    // 8 nodes of each zone, and those two; 64 pairs of each pair of zones, and that one.
    let (rows, lookups) = (&world.rows, &world.lookups);
    let [rows, lookups] = [rows, lookups].map(|n| n.load(Ordering::Relaxed));
    assert!(
        rows <= 10 * 8 + 2 && lookups <= 55 * 64 + 1,
        "{rows}, {lookups}"
    );
    let cell = &report.cells[0][1];
    assert_eq!(
        (cell.effective, cell.measured_pairs),
        (EffectiveRtt::new(Basis::Estimated, 1000), 1)
    );
    assert_eq!(report.cells[1][0], *cell);
    assert_eq!(report.cells[3][3].effective.rtt_micros, Some(100));
    assert_eq!(
        MatrixReport::by_zone(&world).unwrap(),
        report,
        "the same sample again"
    );
}

#[test]
fn worlds_that_are_empty_or_have_one_node() {
    let empty = World::default();
    assert_eq!(
        MatrixReport::by_zone(&empty).unwrap(),
        MatrixReport::default()
    );
    assert!(
        MatrixReport::by_node(&empty, None, &[])
            .unwrap()
            .names
            .is_empty()
    );
    assert_eq!(TopReport::of(&empty, 9), TopReport::default());
    let error = PairReport::of(&empty, "a", "b").unwrap_err();
    assert_eq!(
        (error.status, error.to_string().as_str()),
        (404, "there is no node a")
    );
    let one = World::of(&[("a1", "a")]);
    assert_eq!(
        MatrixReport::by_zone(&one).unwrap().cells,
        [[Cell::default()]]
    );
    let by_node = MatrixReport::by_node(&one, None, &[]).unwrap();
    assert_eq!(
        by_node.cells[0][0].effective,
        EffectiveRtt::new(Basis::Same, 0)
    );
}

#[test]
fn the_worst_pairs_come_first() {
    let world = World::of(&[("a", ""), ("b", ""), ("c", ""), ("d", "")])
        .measured("a", "b", 12_000, 15_000)
        .measured("a", "c", 30_000, 30_000)
        .unreachable("b", "c")
        .named("a", "b", Some(5_000), Some(20_000))
        .named("a", "c", None, None)
        .named("a", "c", Some(31_000), Some(60_000))
        .named("a", "c", None, Some(20_000))
        .named("c", "d", None, Some(20_000))
        .named("b", "c", None, None);
    let report = TopReport::of(&world, 9);
    let order: Vec<_> = report
        .pairs
        .iter()
        .map(|p| format!("{}-{} {:?} {}", p.from, p.to, p.limit_share, p.compliance))
        .collect();
    assert_eq!(
        order,
        [
            "b-c None Violation",
            "a-c Some(1.5) Violation",
            "a-b Some(0.75) Limit",
            "a-c Some(0.5) Compliant",
            "a-c None Compliant",
            "c-d None Error",
        ]
    );
    let mut judged = world.demands[0].clone();
    judged.level = Some(Compliance::Violation);
    let steady = World {
        demands: vec![judged],
        ..World::of(&[]).measured("a", "b", 12_000, 15_000)
    };
    let compliance = &TopReport::of(&steady, 1).pairs[0].compliance;
    assert_eq!(
        compliance, "Violation",
        "three visits in a row have not said otherwise"
    );
    assert_eq!(report.pairs[2].apart, Some(0.25));
    assert_eq!(report.pairs[2].age_micros, Some(1_200_000));
    let two = TopReport::of(&world, 2);
    assert_eq!((two.pairs.len(), two.named), (2, 6));
}

#[tokio::test]
async fn requests_get_json_or_the_fix() {
    let get = async |path: &str, query: &str| answer(two_zones(), path, query).await;
    let (status, body) = get("/latency/matrix", "zone=a").await;
    let matrix: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &matrix["names"]),
        (200, &serde_json::json!(["a1", "a2"]))
    );
    assert_eq!(matrix["cells"][0][1]["rttMicros"], 210);
    let (_, body) = get("/latency/matrix", "by=node&nodes=b1,a1").await;
    assert!(body.contains("[\"a1\",\"b1\"]"), "{body}");
    let (_, body) = get("/latency/silent", "").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["total"], 4);
    assert_eq!(body["nodes"][0]["node"], "a1");
    let (_, body) = get("/latency/top", "limit=1").await;
    assert!(body.contains("\"limitShare\":0.75"), "{body}");
    for (path, query, status, fix) in [
        (
            "/latency/pair",
            "from=a1&to=b11",
            404,
            "there is no node b11; did you mean b1 or ",
        ),
        ("/latency/pair", "from=a1", 400, "missing field `to`"),
        ("/latency/matrix", "by=rack", 400, "by: write zone or node"),
        ("/latency/matrix", "by=zone&zone=a", 400, "write by=node"),
        (
            "/latency/matrix",
            "zone=c",
            404,
            "there is no zone c; did you mean a or b?",
        ),
        ("/latency/matrix", "nodes=a1,x", 404, "there is no node x"),
        ("/latency/top", "limit=0", 400, "from 1 to 1000"),
        ("/latency/top", "n=5", 400, "expected `limit`"),
    ] {
        let (got, text) = get(path, query).await;
        assert_eq!(got, status, "{path}?{query}: {text}");
        assert!(text.contains(fix), "{path}?{query}: {text}");
    }
    assert_eq!(get("/latency/other", "").await.0, 0);
    assert_eq!(get("/other", "").await.0, 0);
}

#[test]
fn too_many_nodes_are_refused_with_the_fix() {
    let names: Vec<String> = (0..201).map(|i| format!("n{i}")).collect();
    let all: Vec<(&str, &str)> = names.iter().map(|n| (n.as_str(), n.as_str())).collect();
    let world = World::of(&all);
    let error = MatrixReport::by_node(&world, None, &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "201 nodes, and at most 200 can be shown; narrow it with zone=ZONE or nodes=A,B,C"
    );
    assert_eq!(error.status, 400);
    assert_eq!(MatrixReport::by_zone(&world).unwrap_err().status, 400);
    let one = MatrixReport::by_node(&world, Some("n7"), &[]).unwrap();
    assert_eq!(one.names, ["n7"]);
}
