use tautline_core::model::Resources;

use super::*;
use crate::names::DEVICES_ANNOTATION;

fn read<'a>(
    node: &Node,
    pods: impl Iterator<Item = &'a Pod> + Clone,
    held: &[PodReservation],
) -> Inventory {
    super::read(node, pods, held, None)
}

fn node(allocatable: &[(&str, i64)], labels: &[(&str, &str)]) -> Node {
    Node {
        name: "n".into(),
        labels: labels.iter().copied().collect(),
        allocatable: allocatable.iter().map(|(n, v)| (*n, v * 1000)).collect(),
        ..Node::default()
    }
}

fn pod(name: &str, requests: &[(&str, i64)], annotations: &[(&str, &str)]) -> Pod {
    Pod {
        namespace: "ml".into(),
        name: name.into(),
        uid: name.into(),
        annotations: annotations.iter().copied().collect(),
        requests: requests
            .iter()
            .map(|(n, v)| (*n, v * 1000))
            .collect::<Resources>(),
        ..Pod::default()
    }
}

fn left(pool: &CardPool) -> Vec<u16> {
    pool.cards.iter().map(Card::left_milli).collect()
}

#[test]
fn read_counts_whole_cards_of_a_device_plugin() {
    let node = node(
        &[("nvidia.com/gpu", 4), ("cpu", 16), ("memory", 64 << 30)],
        &[("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3")],
    );
    let pods = [pod(
        "a",
        &[("nvidia.com/gpu", 2), ("cpu", 4), ("memory", 1 << 30)],
        &[],
    )];
    let all = read(&node, pods.iter(), &[]);
    assert_eq!(left(&all.pools[0]), [0, 0, 1000, 1000]);
    assert_eq!(all.pools[0].kind.mode, SharingMode::Whole);
    assert_eq!((all.cpu_milli, all.memory_bytes), (12_000, 63 << 30));
}

#[test]
fn read_packs_each_share_on_one_card() {
    let node = node(
        &[("nvidia.com/gpu-shared", 8)],
        &[("nvidia.com/gpu.replicas", "4")],
    );
    let shared = "nvidia.com/gpu-shared";
    let pods = [
        pod("a", &[(shared, 1)], &[]),
        pod("b", &[(shared, 3)], &[]),
        pod("c", &[(shared, 2)], &[]),
    ];
    let all = read(&node, pods.iter(), &[]);
    assert_eq!(left(&all.pools[0]), [0, 500]);
    assert!(all.warnings.is_empty());
}

#[test]
fn read_counts_shares_without_the_replicas_label() {
    let node = node(&[("nvidia.com/gpu.shared", 8)], &[]);
    let pods = [pod("a", &[("nvidia.com/gpu.shared", 3)], &[])];
    let all = read(&node, pods.iter(), &[]);
    assert!(all.pools.is_empty());
    assert_eq!((all.counted[0].total, all.counted[0].used), (8, 3));
    assert!(
        all.warnings[0].contains("nvidia.com/gpu.replicas"),
        "{:?}",
        all.warnings
    );
}

#[test]
fn read_follows_annotations_and_health() {
    let mut node = node(&[("tautline.io/gpu-cards", 4)], &[]);
    node.annotations = [("tautline.io/gpu-unhealthy", "3")].into_iter().collect();
    let pods = [
        pod("a", &[], &[(DEVICES_ANNOTATION, "1:250")]),
        pod(
            "b",
            &[],
            &[
                ("alibabacloud.com/gpu-index", "2"),
                ("alibabacloud.com/gpu-milli", "460"),
            ],
        ),
        pod(
            "c",
            &[],
            &[
                ("alibabacloud.com/gpu-milli", "500"),
                ("alibabacloud.com/gpu-count", "1"),
            ],
        ),
        pod("d", &[], &[(DEVICES_ANNOTATION, "nonsense:")]),
    ];
    let held = [PodReservation {
        pod: "ml/e".into(),
        cpu_milli: 0,
        memory_bytes: 0,
        parts: vec![CardShare {
            card: "0".into(),
            milli: 1000,
            start: None,
        }],
    }];
    let all = read(&node, pods.iter(), &held);
    assert_eq!(left(&all.pools[0]), [0, 750, 40, 0]);
    assert!(
        all.warnings[0].starts_with("pod ml/d, annotation"),
        "{:?}",
        all.warnings
    );
    let part = |card: &str| {
        vec![CardShare {
            card: card.into(),
            milli: 250,
            start: None,
        }]
    };
    assert_eq!(all.fault("ml/a", &part("1")), None);
    assert_eq!(
        all.fault("ml/a", &part("3")).unwrap(),
        "card 3 is unhealthy"
    );
    assert_eq!(all.fault("ml/a", &part("4")).unwrap(), "card 4 is gone");
}

#[test]
fn fault_names_the_card_that_is_gone_before_what_counts_in_its_place() {
    let node = node(&[("tautline.io/gpu-cards", 1)], &[]);
    let pods = [pod("a", &[], &[(DEVICES_ANNOTATION, "0:1000,1:1000")])];
    let all = read(&node, pods.iter(), &[]);
    let gone = all.fault("ml/a", &[share("0", 1000), share("1", 1000)]);
    assert_eq!(gone.unwrap(), "card 1 is gone");
}

/// The pod whose card is gone takes no other from those whose records name it, whoever is older.
#[test]
fn a_pod_whose_card_is_gone_takes_no_card_of_others() {
    let node = node(&[("tautline.io/gpu-cards", 1)], &[]);
    let held = |name: &str, card| pod(name, &[], &[(DEVICES_ANNOTATION, card)]);
    let pods = [held("a", "1:1000"), held("b", "0:1000")];
    let all = read(&node, pods.iter(), &[]);
    let fault = |name: &str, card| all.fault(name, &[share(card, 1000)]);
    assert_eq!(fault("ml/a", "1").unwrap(), "card 1 is gone");
    assert_eq!(fault("ml/b", "0"), None);
}

#[test]
fn fault_names_an_over_committed_card() {
    let node = node(&[("tautline.io/gpu-cards", 1)], &[]);
    let pods = [
        pod("a", &[], &[(DEVICES_ANNOTATION, "0:600")]),
        pod("b", &[], &[(DEVICES_ANNOTATION, "0:600")]),
    ];
    let all = read(&node, pods.iter(), &[]);
    let held = [share("0", 600)];
    assert_eq!(all.fault("ml/a", &held), None);
    assert_eq!(
        all.fault("ml/b", &held).unwrap(),
        "card 0 is over-committed: 1200m of 1000m held; before it came ml/a"
    );
    assert_eq!(left(&all.pools[0]), [0]);
}

#[test]
fn read_counts_mig_instances() {
    let node = node(&[("nvidia.com/mig-1g.10gb", 7)], &[]);
    let pods = [pod("a", &[("nvidia.com/mig-1g.10gb", 2)], &[])];
    let all = read(&node, pods.iter(), &[]);
    assert_eq!((all.counted[0].total, all.counted[0].used), (7, 2));
}

#[test]
fn read_counts_gke_partitions_as_mig_instances() {
    for resource in ["nvidia.com/gpu", "nvidia.com/gpu.shared"] {
        let partition = ("cloud.google.com/gke-gpu-partition-size", "1g.10gb");
        let node = node(&[(resource, 7)], &[partition]);
        let pods = [pod("a", &[(resource, 2)], &[])];
        let all = read(&node, pods.iter(), &[]);
        let counted = &all.counted[0];
        assert_eq!(
            (counted.total, counted.used, counted.is_instance),
            (7, 2, true)
        );
        assert_eq!((all.pools, all.warnings), (vec![], vec![]));
    }
}

const INVENTORY: &str = r#"{"limits": "none", "cards": [
    {"uuid": "GPU-a", "index": 0, "product": "A100", "memoryBytes": 85899345920, "nvlink": 0},
    {"uuid": "GPU-b", "index": 1, "product": "A100", "memoryBytes": 85899345920, "nvlink": 0,
     "fault": "Xid79"},
    {"uuid": "GPU-t", "index": 2, "product": "T4", "memoryBytes": 17179869184}]}"#;

fn agent_node(inventory: &str, allocatable: &[(&str, i64)]) -> Node {
    let mut node = node(allocatable, &[("tautline.io/gpu-cards", "9")]);
    node.annotations = [("tautline.io/gpu-inventory", inventory)]
        .into_iter()
        .collect();
    node
}

fn share(card: &str, milli: u16) -> CardShare {
    CardShare {
        card: card.into(),
        milli,
        start: None,
    }
}

#[test]
fn read_takes_the_cards_of_an_agent_by_product() {
    let node = agent_node(INVENTORY, &[("tautline.io/gpu-milli", 3000)]);
    let pods = [
        pod("uuid", &[], &[(DEVICES_ANNOTATION, "GPU-a:250")]),
        pod("index", &[], &[(DEVICES_ANNOTATION, "0:500,2:100")]),
        pod("gone", &[], &[(DEVICES_ANNOTATION, "GPU-x:500")]),
    ];
    let held = [PodReservation {
        pod: "ml/held".into(),
        cpu_milli: 0,
        memory_bytes: 0,
        parts: vec![share("GPU-t", 400)],
    }];
    let all = read(&node, pods.iter(), &held);
    assert_eq!(all.warnings, [""; 0]);
    let [a100, t4] = all.pools.as_slice() else {
        panic!("{all:?}")
    };
    assert_eq!((left(a100), left(t4)), (vec![250, 0], vec![500]));
    assert_eq!((&*a100.kind.product, &*t4.kind.product), ("A100", "T4"));
    assert_eq!(t4.card_memory_bytes, Some(16 << 30));
    assert!(a100.has_agent() && t4.has_agent());
    let fault = all
        .fault("ml/index", &[share("GPU-a", 250), share("1", 250)])
        .unwrap();
    assert_eq!(fault, "card 1 is unhealthy: Xid79");
    assert_eq!(
        all.fault("ml/gone", &[share("GPU-x", 1)]).unwrap(),
        "card GPU-x is gone"
    );
    assert_eq!(all.card("GPU-t").unwrap().1.record_name(), "GPU-t");
}

#[test]
fn read_packs_pods_without_records_where_they_fit() {
    let node = agent_node(INVENTORY, &[]);
    let milli = "tautline.io/gpu-milli";
    let memory = "tautline.io/gpu-memory";
    let pods = [
        pod("whole", &[(milli, 1000)], &[]),
        pod("quarter", &[(milli, 250), (memory, 8)], &[]),
        // A T4 has too little memory, and the A100 is full: it is over-committed.
        pod("large", &[(memory, 20)], &[]),
        pod("torn", &[(milli, 250)], &[(DEVICES_ANNOTATION, "torn:")]),
    ];
    let all = read(&node, pods.iter(), &[]);
    let held = |pool: usize, card: usize| all.pools[pool].cards[card].held_milli();
    assert_eq!((held(0, 0), held(0, 1), held(1, 0)), (1250, 0, 750));
    assert!(all.pools[1].cards[0].holders.iter().all(|h| !h.annotated));
    assert_eq!(all.warnings.len(), 1, "{:?}", all.warnings);
}

#[test]
fn with_an_agent_only_records_and_requests_of_its_cards_count() {
    let pods = [
        pod("index", &[], &[("alibabacloud.com/gpu-index", "0,2")]),
        pod("count", &[], &[("alibabacloud.com/gpu-count", "3")]),
        pod(
            "milli",
            &[("tautline.io/gpu-milli", 100)],
            &[
                ("alibabacloud.com/gpu-index", "2"),
                ("alibabacloud.com/gpu-count", "3"),
            ],
        ),
    ];
    let agent = agent_node(INVENTORY, &[("tautline.io/gpu-milli", 3000)]);
    let with_agent = read(&agent, pods.iter(), &[]);
    let lefts: Vec<_> = with_agent.pools.iter().map(left).collect();
    assert_eq!(lefts, [vec![900, 0], vec![1000]]);
    assert_eq!(with_agent.assigned_cards(&pods[0]), None);
    let record = pod("record", &[], &[(DEVICES_ANNOTATION, "GPU-a:250")]);
    let parts = with_agent.assigned_cards(&record);
    assert_eq!(parts, Some(Ok(vec![share("GPU-a", 250)])));

    let label = node(&[("tautline.io/gpu-cards", 3)], &[]);
    let without = read(&label, pods[..1].iter(), &[]);
    assert_eq!(left(&without.pools[0]), [0, 1000, 0]);
    let parts = without.assigned_cards(&pods[0]);
    assert_eq!(parts, Some(Ok(vec![share("0", 1000), share("2", 1000)])));
}

/// As while NVIDIA's plugin restarts, or while the agent does.
#[test]
fn an_agent_that_offers_nothing_leaves_pods_their_cards_and_gives_no_more() {
    let pods = [pod("a", &[], &[(DEVICES_ANNOTATION, "GPU-a:250")])];
    for allocatable in [
        &[][..],
        &[("tautline.io/gpu-milli", 0), ("nvidia.com/gpu", 0)],
        // A resource that the provider does not know.
        &[("tautline.io/gpu-milli", 0), ("nvidia.com/GH100_H100", 2)],
    ] {
        let node = agent_node(INVENTORY, allocatable);
        let all = read(&node, pods.iter(), &[]);
        assert!(all.pools.iter().all(|p| p.has_agent() && !p.offered));
        assert_eq!(all.capacity(&all.pools[0], 0).cards(), [0, 0]);
        assert_eq!(all.pools[0].cards[0].held_milli(), 250);
        assert_eq!(all.fault("ml/a", &[share("GPU-a", 250)]), None);
    }
    let node = agent_node(INVENTORY, &[("tautline.io/gpu-milli", 3000)]);
    let all = read(&node, pods.iter(), &[]);
    assert_eq!(all.capacity(&all.pools[0], 0).cards(), [750, 0]);
}

#[test]
fn a_device_plugin_has_precedence_over_an_agent_and_an_agent_over_labels() {
    let count = |node: &Node| {
        let all = read(node, std::iter::empty(), &[]);
        let pools = all.pools.iter();
        let pools: Vec<_> = pools.map(|p| (p.kind.mode, p.cards.len())).collect();
        (pools, all.warnings)
    };
    let plugin = agent_node(INVENTORY, &[("nvidia.com/gpu", 3)]);
    assert_eq!(count(&plugin).0, [(SharingMode::Whole, 3)]);
    let agent = agent_node(INVENTORY, &[("nvidia.com/gpu", 0)]);
    assert_eq!(
        count(&agent).0,
        [(SharingMode::Agent, 2), (SharingMode::Agent, 1)]
    );
    let (none, warnings) = count(&agent_node("{", &[]));
    assert!(none.is_empty());
    assert!(
        warnings[0].starts_with("annotation tautline.io/gpu-inventory: EOF")
            && warnings[0].ends_with("until its agent writes it again"),
        "{warnings:?}"
    );
    let twice = r#"{"cards": [{"uuid": "GPU-a", "index": 0}, {"uuid": "GPU-a", "index": 1},
        {"index": 2}]}"#;
    let (pools, warnings) = count(&agent_node(twice, &[]));
    assert_eq!(pools, [(SharingMode::Agent, 2)]);
    assert!(warnings[0].contains("card 1 GPU-a is listed twice"));
    assert!(warnings[1].contains("card 2 has no UUID"));
}

#[test]
fn cards_of_an_agent_are_taken_out_by_hand_too() {
    let mut node = agent_node(INVENTORY, &[]);
    node.annotations = [
        ("tautline.io/gpu-inventory", INVENTORY),
        ("tautline.io/gpu-unhealthy", "GPU-a, 1, 2"),
    ]
    .into_iter()
    .collect();
    let all = read(&node, std::iter::empty(), &[]);
    let faults = all.pools.iter().flat_map(|p| &p.cards);
    let faults: Vec<_> = faults.map(|c| c.fault.as_deref().unwrap()).collect();
    assert_eq!(faults, [UNHEALTHY, "Xid79", UNHEALTHY]);
}

/// Whatever a pod says of itself, those who had the cards before keep them.
#[test]
fn who_comes_later_and_without_a_record_takes_no_card_of_others() {
    let index = ("alibabacloud.com/gpu-index", "0");
    let aged = |created_unix, pod: Pod| Pod {
        created_unix,
        ..pod
    };
    let pods = [
        aged(1, pod("older", &[], &[index])),
        aged(9, pod("holder", &[], &[(DEVICES_ANNOTATION, "0:1000")])),
        aged(5, pod("middle", &[], &[index])),
    ];
    let all = read(
        &node(&[("tautline.io/gpu-cards", 2)], &[]),
        pods.iter(),
        &[],
    );
    let held = [share("0", 1000)];
    assert_eq!(all.fault("ml/holder", &held), None);
    assert_eq!(
        all.fault("ml/older", &held).unwrap(),
        "card 0 is over-committed: 3000m of 1000m held; before it came ml/holder"
    );
    let middle = all.fault("ml/middle", &held).unwrap();
    assert!(
        middle.ends_with("before it came ml/holder, ml/older"),
        "{middle}"
    );
    assert_eq!(all.pools[0].cards[0].held_before("ml/middle"), 2000);
    assert_eq!(left(&all.pools[0]), [0, 1000]);
}

#[test]
fn a_guess_without_room_is_at_the_expense_of_the_youngest() {
    let milli = "tautline.io/gpu-milli";
    let aged = |created_unix, name: &str, amount| Pod {
        created_unix,
        ..pod(name, &[(milli, amount)], &[])
    };
    let pods = [
        aged(1, "old", 250),
        aged(2, "young", 1000),
        Pod {
            created_unix: 3,
            ..pod(
                "holder",
                &[(milli, 900)],
                &[(DEVICES_ANNOTATION, "GPU-a:900")],
            )
        },
    ];
    let node = agent_node(
        r#"{"cards": [{"uuid": "GPU-a", "index": 0}, {"uuid": "GPU-b", "index": 1}]}"#,
        &[(milli, 2000)],
    );
    let all = read(&node, pods.iter(), &[]);
    assert!(all.conflict("ml/old").is_none() && all.conflict("ml/holder").is_none());
    let (_, card, text) = all.conflict("ml/young").unwrap();
    assert_eq!(
        text,
        "card GPU-a is over-committed: 1900m of 1000m held; before it came ml/holder"
    );
    assert_eq!(card.held_before("ml/young"), 900);
}

#[test]
fn without_an_agent_records_that_name_no_known_card_count_as_taken() {
    let node = node(&[("tautline.io/gpu-cards", 4)], &[]);
    let left_with = |record: &str| {
        let pods = [pod("a", &[], &[(DEVICES_ANNOTATION, record)])];
        let all = read(&node, pods.iter(), &[]);
        left(&all.pools[0])
    };
    // The card is not known: one of the node's.
    assert_eq!(left_with("9:250"), [750, 1000, 1000, 1000]);
    assert_eq!(left_with("GPU-x:250,3:500"), [1000, 1000, 1000, 250]);
}

#[test]
fn without_an_agent_an_unreadable_record_takes_only_what_others_leave() {
    let node = node(&[("tautline.io/gpu-cards", 4)], &[]);
    let milli = ("alibabacloud.com/gpu-milli", "600");
    for (record, left_of_others) in [
        ("0:1000;1:1000", [0, 0, 500, 0]),
        ("0:1000 1:1000", [0, 0, 500, 0]),
        ("0|1", [0, 0, 500, 0]),
        ("0 1", [0, 0, 500, 0]),
        ("1:x", [0, 0, 500, 0]),
        ("2:250,3:1001", [0, 400, 0, 0]),
        ("x:", [0, 400, 500, 0]),
        ("", [0, 400, 500, 0]),
    ] {
        let pods = [
            pod("unreadable", &[], &[(DEVICES_ANNOTATION, record)]),
            Pod {
                created_unix: 9,
                ..pod("one", &[], &[(DEVICES_ANNOTATION, "1:600")])
            },
            Pod {
                created_unix: 9,
                ..pod(
                    "half",
                    &[],
                    &[
                        ("alibabacloud.com/gpu-index", "2"),
                        ("alibabacloud.com/gpu-milli", "500"),
                    ],
                )
            },
            Pod {
                created_unix: 9,
                ..pod("guessed", &[], &[milli])
            },
        ];
        let all = read(&node, pods.iter(), &[]);
        assert_eq!(left(&all.pools[0]), left_of_others, "{record}");
        for other in &pods[1..] {
            let conflict = all.conflict(&format!("ml/{}", other.name));
            assert!(conflict.is_none(), "{record}: {conflict:?}");
        }
        assert_eq!(all.warnings.len(), 1, "{:?}", all.warnings);
    }
}

#[test]
fn warnings_name_the_unreadable_annotation() {
    let node = node(&[("tautline.io/gpu-cards", 4)], &[]);
    for annotation in [DEVICES_ANNOTATION, "alibabacloud.com/gpu-index"] {
        let pods = [pod("a", &[], &[(annotation, "0|1")])];
        let warnings = read(&node, pods.iter(), &[]).warnings;
        let start = format!("pod ml/a, annotation {annotation}: \"0|1\" is no card");
        assert!(warnings[0].starts_with(&start), "{warnings:?}");
    }
}

#[test]
fn unreadable_amounts_count_as_whole_cards() {
    let node = node(&[("tautline.io/gpu-cards", 4)], &[]);
    for (milli, count, expected, warnings) in [
        ("many", None, [0, 1000, 1000, 1000], 1),
        ("1500", None, [0, 1000, 1000, 1000], 1),
        ("1500", Some("2"), [0, 0, 1000, 1000], 1),
        ("500", Some("2x"), [500, 1000, 1000, 1000], 1),
        ("500", Some("9999"), [0, 0, 0, 0], 0),
        ("0", Some("0"), [1000; 4], 0),
    ] {
        let count = count.map(|count| ("alibabacloud.com/gpu-count", count));
        let milli = ("alibabacloud.com/gpu-milli", milli);
        let annotations: Vec<_> = count.into_iter().chain([milli]).collect();
        let pods = [pod("a", &[], &annotations)];
        let all = read(&node, pods.iter(), &[]);
        assert_eq!(left(&all.pools[0]), expected, "{annotations:?}");
        assert_eq!(all.warnings.len(), warnings, "{:?}", all.warnings);
    }
    let index = ("alibabacloud.com/gpu-index", "2");
    let pods = [
        pod("a", &[], &[("alibabacloud.com/gpu-count", "2x")]),
        pod("b", &[], &[("alibabacloud.com/gpu-milli", "1500"), index]),
    ];
    let all = read(&node, pods.iter(), &[]);
    assert_eq!(left(&all.pools[0]), [0, 1000, 0, 1000]);
    assert_eq!(all.warnings.len(), 2, "{:?}", all.warnings);
}

#[test]
fn only_the_later_of_two_instances_in_one_place_is_at_fault() {
    let mig = r#""mig": {"taken": [], "profiles": [
        {"name": "3g.40gb", "milli": 500, "size": 4, "compute": 3, "starts": [0, 4]}]}"#;
    let inventory =
        format!(r#"{{"limits": "mig", "cards": [{{"uuid": "GPU-a", "index": 0, {mig}}}]}}"#);
    let node = agent_node(&inventory, &[("tautline.io/gpu-milli", 1000)]);
    let aged = |created_unix, name: &str| Pod {
        created_unix,
        ..pod(name, &[], &[(DEVICES_ANNOTATION, "GPU-a:500@4")])
    };
    let pods = [aged(2, "later"), aged(1, "first")];
    let all = read(&node, pods.iter(), &[]);
    let held = [share("GPU-a", 500)];
    assert_eq!(all.fault("ml/first", &held), None);
    assert_eq!(
        all.fault("ml/later", &held).unwrap(),
        "card GPU-a has memory slices that two pods hold; before it came ml/first"
    );
}
