//! The checker must find wrong placements in the API server's events.

use std::{collections::BTreeSet, io::Write, path::Path};

use serde_json::json;

use super::*;
use crate::{clock::SLOT_MILLIS, processes};

const SEED: u64 = 1;

struct World {
    checker: Checker,
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ['a', 'b'] {
            std::fs::write(processes::answers(dir.path(), name), "").unwrap();
        }
        let checker = Checker::new(ExpectedAnswers::new(SEED, dir.path()), SEED);
        Self { checker, dir }
    }

    fn bound(&mut self, name: &str, app: &str, node: &str, at: u64, cards: &str) {
        let time = k8s_openapi::jiff::Timestamp::from_second(at as i64 / 1000).unwrap();
        let pod = json!({
            "metadata": {"name": name, "uid": name, "labels": {"app": app},
                         "annotations": {DEVICES: cards}},
            "spec": {"nodeName": node, "containers": []},
            "status": {"conditions": [{"type": "PodScheduled", "status": "True",
                                       "lastTransitionTime": time.to_string()}]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.checker.event(Event::Apply(pod));
    }

    fn wrong(&self) -> usize {
        self.checker.counts.wrong.len()
    }
}

fn answered(dir: &Path, by: char, uid: &str, at: u64) {
    let file = processes::answers(dir, by);
    let mut file = std::fs::File::options().append(true).open(file).unwrap();
    writeln!(file, "{uid} {at} {}", at / SLOT_MILLIS).unwrap();
}

/// A node that `by` calls usable in the slot, or not.
fn node(by: char, slot: u64, usable: bool) -> String {
    let found = kinds::node_names().find(|n| (clock::cost(SEED, by, n, slot) >= 0) == usable);
    found.unwrap()
}

#[test]
fn checker_needs_a_usable_answer_of_the_cycle() {
    let mut world = World::new();
    let slot = 90_000_000;
    let at = slot * SLOT_MILLIS;
    let (good, bad) = (node('a', slot, true), node('a', slot, false));
    answered(world.dir.path(), 'a', "right", at);
    world.bound("right", "near", &good, at, "");
    assert_eq!(world.wrong(), 0, "{:?}", world.checker.counts.wrong);
    answered(world.dir.path(), 'a', "refused", at);
    world.bound("refused", "near", &bad, at, "");
    assert_eq!(world.wrong(), 1);
    world.bound("unasked", "near", &good, at, "");
    assert_eq!(world.wrong(), 2);
    answered(world.dir.path(), 'a', "stale", at);
    world.bound("stale", "near", &good, at + 2 * SLOT_MILLIS, "");
    assert_eq!(world.wrong(), 3);
    // The provider's answer changed while the pod was being bound.
    let changes = kinds::node_names()
        .find(|n| clock::cost(SEED, 'a', n, slot) >= 0 && clock::cost(SEED, 'a', n, slot + 1) < 0);
    let late = at + SLOT_MILLIS;
    answered(world.dir.path(), 'a', "late", late - 100);
    answered(world.dir.path(), 'a', "late", late);
    world.bound("late", "near", &changes.unwrap(), late, "");
    assert_eq!((world.wrong(), world.checker.counts.in_flight), (3, 1));
}

#[test]
fn checker_reports_over_committed_cards() {
    let mut world = World::new();
    world.bound("a", "quarter", "n00", 1000, "0:250");
    world.bound("b", "whole", "n00", 1000, "1:1000");
    world.bound("c", "whole", "n01", 1000, "1:1000");
    assert_eq!(world.wrong(), 0, "{:?}", world.checker.counts.wrong);
    for (i, (node, cards, app)) in [
        ("n00", "0:1000", "whole"),  // over-committed
        ("n00", "", "quarter"),      // none given
        ("n00", "4:250", "quarter"), // no such card
        ("n19", "0:250", "quarter"), // a node without cards
        ("n02", "0:500", "quarter"), // too much
        ("n02", "junk", "quarter"),
    ]
    .into_iter()
    .enumerate()
    {
        world.bound(&format!("w{i}"), app, node, 1000, cards);
        assert_eq!(world.wrong(), i + 1, "{:?}", world.checker.counts.wrong);
    }
    // A deleted pod frees its card, even if only a list shows the deletion.
    world.checker.event(Event::Init);
    world.checker.event(Event::InitDone);
    world.bound("again", "whole", "n01", 1000, "1:1000");
    assert_eq!(world.wrong(), 6);
}

#[test]
fn checker_applies_a_table_once_its_provider_must_know_it() {
    let mut world = World::new();
    world
        .checker
        .expected
        .record_table(BTreeSet::from(["n03".to_owned()]));
    let now = clock::now_millis();
    world.bound("soon", "zone", "n03", now + 10_000, "");
    assert_eq!(world.wrong(), 0, "{:?}", world.checker.counts.wrong);
    world.bound("late", "zone", "n03", now + 60_000, "");
    world.bound("right", "zone", "n04", now + 60_000, "");
    assert_eq!(world.wrong(), 1, "{:?}", world.checker.counts.wrong);
}

#[test]
fn checker_names_nodes_for_pending_pods() {
    let mut world = World::new();
    let quarter = Kind::of("quarter").unwrap();
    let hosts = world.checker.hosts(quarter, SEED, 'a');
    assert_eq!(hosts.len(), kinds::GPU_NODES);
    for card in 0..kinds::CARDS {
        world.bound(
            &format!("w{card}"),
            "whole",
            "n00",
            1000,
            &format!("{card}:1000"),
        );
    }
    assert_eq!(world.checker.hosts(quarter, SEED, 'a'), hosts[1..]);
    let near = Kind::of("near").unwrap();
    assert!(world.checker.hosts(near, SEED, 'a').len() < kinds::NODES);
}
