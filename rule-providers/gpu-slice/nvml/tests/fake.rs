//! The reader on the fake NVML: discovery, faults, processes.

// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use support::{Reader, Scene, fault};

/// A reading comes by an event or not in this test.
const BY_EVENT: &str = "60s";
const OFTEN: &str = "100ms";

fn cards(cards: Value) -> Value {
    json!({ "cards": cards })
}

#[test]
fn eight_cards_on_one_switch_are_found() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fake-nvml/cards.json");
    let reading = Reader::start(&file, OFTEN).first();
    assert_eq!(
        (reading.driver.as_str(), reading.cuda.as_str()),
        ("580.95.05", "13.0")
    );
    assert_eq!(reading.cards.len(), 8);
    for (index, card) in (0..).zip(&reading.cards) {
        assert_eq!(card.index, index);
        assert_eq!(
            (card.product.as_str(), card.family.as_str()),
            ("NVIDIA H100 80GB HBM3", "hopper")
        );
        assert_eq!(
            (card.memory_bytes, card.memory_used_bytes),
            (81559 << 20, 0)
        );
        assert_eq!((card.numa, card.compute), (Some(index / 4), (9, 0)));
        assert_eq!(card.nvlink, Some(0));
        assert_eq!((card.fault.as_deref(), card.mig.as_ref()), (None, None));
    }
    assert_eq!(reading.cards[2].pci, "0000:03:00.0");
    assert_eq!(reading.processes, []);
}

/// The agent sets no label for 0 bytes: `memory_that_is_not_known_has_no_label`.
#[test]
fn memory_that_nvml_does_not_support_is_0_and_no_fault() {
    let scene = Scene::new(&cards(json!([
        {"uuid": "GPU-a", "product": "NVIDIA GB10", "memoryMiB": null, "busy": 30},
    ])));
    let reading = Reader::start(&scene.path(), OFTEN).first();
    let card = &reading.cards[0];
    assert_eq!((card.memory_bytes, card.memory_used_bytes), (0, 0));
    assert_eq!((card.busy_milli, fault(&reading, 0)), (300, None));
}

#[test]
fn direct_links_count_unless_they_are_down() {
    let scene = Scene::new(&cards(json!([
        {"uuid": "GPU-a", "links": [{"to": "GPU-b", "count": 4}, {"to": "GPU-c", "count": 2, "down": true}]},
        {"uuid": "GPU-b", "links": [{"to": "GPU-a", "count": 4}]},
        {"uuid": "GPU-c", "numa": 1},
    ])));
    let reading = Reader::start(&scene.path(), OFTEN).first();
    let domains: Vec<_> = reading.cards.iter().map(|card| card.nvlink).collect();
    assert_eq!(domains, [Some(0), Some(0), None]);
}

#[test]
fn a_critical_xid_is_a_fault_at_once_and_stays() {
    let with = |xids: Value| cards(json!([{"uuid": "GPU-a"}, {"uuid": "GPU-b", "xids": xids}]));
    let scene = Scene::new(&with(json!([])));
    let reader = Reader::start(&scene.path(), BY_EVENT);
    assert_eq!(fault(&reader.first(), 1), None);
    scene.play(&with(json!([13, 79])));
    let reading = reader.until("an XID", |reading| fault(reading, 1).is_some());
    assert_eq!(
        (fault(&reading, 0), fault(&reading, 1)),
        (None, Some("Xid79"))
    );

    let restarted = Reader::start(&scene.path(), BY_EVENT);
    assert_eq!(fault(&restarted.first(), 1), None);
}

#[test]
fn an_uncorrectable_memory_error_is_a_fault_at_once() {
    let with = |errors: u64| cards(json!([{"uuid": "GPU-a", "eccUncorrectable": errors}]));
    let scene = Scene::new(&with(0));
    let reader = Reader::start(&scene.path(), BY_EVENT);
    assert_eq!(fault(&reader.first(), 0), None);
    scene.play(&with(1));
    reader.until("the fault", |reading| {
        fault(reading, 0) == Some("EccUncorrectable")
    });
}

#[test]
fn faults_that_exist_at_the_start_are_found() {
    let scene = Scene::new(&cards(json!([
        {"uuid": "GPU-a", "eccUncorrectable": 3},
        {"uuid": "GPU-b", "remapFailed": true},
        {"uuid": "GPU-c", "pagesPending": true},
        {"uuid": "GPU-d", "temperature": 92},
        {"uuid": "GPU-e", "temperature": 91},
    ])));
    let reading = Reader::start(&scene.path(), OFTEN).first();
    let faults: Vec<_> = reading
        .cards
        .iter()
        .map(|card| card.fault.as_deref())
        .collect();
    assert_eq!(
        faults,
        [
            Some("EccUncorrectable"),
            Some("RowRemapFailed"),
            Some("PagesPending"),
            Some("Overheated"),
            None
        ]
    );
}

#[test]
fn a_lost_card_stays_listed_until_it_is_back() {
    let with = |lost: bool| {
        cards(json!([{"uuid": "GPU-a", "lost": lost, "usedMiB": 7}, {"uuid": "GPU-b"}]))
    };
    let scene = Scene::new(&with(false));
    let reader = Reader::start(&scene.path(), OFTEN);
    let before = reader.first();
    scene.play(&with(true));
    let lost = reader.until("the fault", |reading| fault(reading, 0) == Some("Gone"));
    assert_eq!(lost.cards.len(), 2);
    assert_eq!(lost.cards[0].memory_bytes, before.cards[0].memory_bytes);
    assert_eq!(fault(&lost, 1), None);
    scene.play(&with(false));
    let back = reader.until("the card", |reading| fault(reading, 0).is_none());
    assert_eq!(back.cards[0].memory_used_bytes, 7 << 20);
}

#[test]
fn a_card_that_is_lost_at_the_start_is_listed_once_it_is_back() {
    let with = |lost: bool| cards(json!([{"uuid": "GPU-a", "lost": lost}, {"uuid": "GPU-b"}]));
    let scene = Scene::new(&with(true));
    let reader = Reader::start(&scene.path(), "1s");
    assert_eq!(reader.first().cards[0].uuid, "GPU-b");
    scene.play(&with(false));
    let both = reader.until("both cards", |reading| reading.cards.len() == 2);
    assert_eq!(both.cards[0].uuid, "GPU-a");
}

#[test]
fn a_call_that_hangs_ends_the_reader_and_names_the_card() {
    let with = |hang: bool| cards(json!([{"uuid": "GPU-a"}, {"uuid": "GPU-b", "hang": hang}]));
    let scene = Scene::new(&with(false));
    let mut reader = Reader::start(&scene.path(), OFTEN);
    reader.first();
    scene.play(&with(true));
    let last = reader.until("the fault", |reading| fault(reading, 1).is_some());
    assert_eq!(
        (fault(&last, 0), fault(&last, 1)),
        (None, Some("Unresponsive"))
    );
    let (status, text) = reader.end();
    assert_eq!(status.code(), Some(4));
    assert_eq!(text, "NVML hangs: reading of card GPU-b\n");
}

#[test]
fn processes_are_listed_by_pid_with_memory_and_load() {
    let mark = format!("tautline-nvml-test-{}", std::process::id());
    let mut stray = Command::new("sh")
        .args(["-c", "read line", &mark])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let scene = Scene::new(&json!({
        "cards": [{"uuid": "GPU-a", "busy": 37, "usedMiB": 66}, {"uuid": "GPU-b"}],
        "processes": [
            {"pid": 41, "card": 0, "memoryMiB": 1024, "sm": 30},
            {"pid": 41, "card": "GPU-b", "memoryMiB": 2048, "list": "graphics"},
            {"pid": 42, "card": 0, "memoryMiB": 512, "list": "mps"},
            {"match": mark, "card": 1, "memoryMiB": 1},
        ],
    }));
    let reading = Reader::start(&scene.path(), OFTEN).first();
    stray.kill().unwrap();
    stray.wait().unwrap();
    let found: Vec<_> = reading
        .processes
        .iter()
        .map(|process| {
            let pid = if process.pid == stray.id() {
                0
            } else {
                process.pid
            };
            (
                pid,
                process.card.as_str(),
                process.memory_bytes >> 20,
                process.sm_milli,
            )
        })
        .collect();
    assert_eq!(
        found[..2],
        [(41, "GPU-a", 1024, 300), (42, "GPU-a", 512, 0)]
    );
    assert!(found.contains(&(41, "GPU-b", 2048, 0)), "{found:?}");
    assert!(found.contains(&(0, "GPU-b", 1, 0)), "{found:?}");
    assert_eq!(reading.cards[0].busy_milli, 370);
    assert_eq!(reading.cards[0].memory_used_bytes >> 20, 1024 + 512 + 66);
}

#[test]
fn mig_instances_are_listed_as_they_change() {
    let with = |mig: Value| cards(json!([{"uuid": "GPU-a", "mig": mig}]));
    let scene = Scene::new(&with(json!(null)));
    let reader = Reader::start(&scene.path(), BY_EVENT);
    assert_eq!(reader.first().cards[0].mig, None);
    scene.play(&with(json!([
        {"uuid": "MIG-1", "profile": "1g.10gb", "start": 0},
        {"uuid": "MIG-2", "profile": "3g.40gb", "start": 4},
    ])));
    let reading = reader.until("instances", |reading| reading.cards[0].mig.is_some());
    let mig = reading.cards[0].mig.as_ref().unwrap();
    let listed: Vec<_> = mig
        .iter()
        .map(|one| (one.uuid.as_str(), one.profile.as_str(), one.start))
        .collect();
    assert_eq!(listed, [("MIG-1", "1g.10gb", 0), ("MIG-2", "3g.40gb", 4)]);
    assert_eq!(mig[1].gpu_instance, 2);
}

#[test]
fn no_driver_has_its_own_exit_status() {
    let (status, text) = Reader::start(Path::new("/nonexistent.json"), OFTEN).end();
    assert_eq!(status.code(), Some(3));
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("no NVIDIA driver: "), "{text}");
}

#[test]
fn a_driver_that_is_unloaded_ends_the_reader() {
    let scene = Scene::new(&cards(json!([{"uuid": "GPU-a"}])));
    let mut reader = Reader::start(&scene.path(), OFTEN);
    reader.first();
    std::fs::remove_file(scene.path()).unwrap();
    let (status, text) = reader.end();
    assert_eq!(status.code(), Some(1));
    assert!(text.contains("GPU-a"), "{text}");
}

#[test]
fn the_end_of_stdin_ends_the_reader_even_while_all_hangs() {
    let scene = Scene::new(&cards(json!([{"uuid": "GPU-a"}])));
    let mut reader = Reader::start(&scene.path(), BY_EVENT);
    reader.first();
    scene.play(&json!({"hang": true, "cards": [{"uuid": "GPU-a"}]}));
    reader.close_stdin();
    assert_eq!(reader.end().0.code(), Some(0));
}
