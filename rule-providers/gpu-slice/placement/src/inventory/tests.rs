use tautline_core::model::Resources;

use super::*;

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
    let all = read(&Names::default(), &node, pods.iter(), &[]);
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
    let all = read(&Names::default(), &node, pods.iter(), &[]);
    assert_eq!(left(&all.pools[0]), [0, 500]);
    assert!(all.warnings.is_empty());
}

#[test]
fn read_counts_shares_without_the_replicas_label() {
    let node = node(&[("nvidia.com/gpu.shared", 8)], &[]);
    let pods = [pod("a", &[("nvidia.com/gpu.shared", 3)], &[])];
    let all = read(&Names::default(), &node, pods.iter(), &[]);
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
        }],
    }];
    let all = read(&Names::default(), &node, pods.iter(), &held);
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
        }]
    };
    assert_eq!(all.fault(&part("1")), None);
    assert_eq!(all.fault(&part("3")).unwrap(), "card 3 is unhealthy");
    assert_eq!(all.fault(&part("4")).unwrap(), "card 4 is gone");
}

#[test]
fn fault_names_an_over_committed_card() {
    let node = node(&[("tautline.io/gpu-cards", 1)], &[]);
    let pods = [
        pod("a", &[], &[(DEVICES_ANNOTATION, "0:600")]),
        pod("b", &[], &[(DEVICES_ANNOTATION, "0:600")]),
    ];
    let all = read(&Names::default(), &node, pods.iter(), &[]);
    let fault = all
        .fault(&[CardShare {
            card: "0".into(),
            milli: 600,
        }])
        .unwrap();
    assert_eq!(fault, "card 0 is over-committed: 1200m of 1000m held");
    assert_eq!(left(&all.pools[0]), [0]);
}

#[test]
fn read_counts_mig_instances() {
    let node = node(&[("nvidia.com/mig-1g.10gb", 7)], &[]);
    let pods = [pod("a", &[("nvidia.com/mig-1g.10gb", 2)], &[])];
    let all = read(&Names::default(), &node, pods.iter(), &[]);
    assert_eq!((all.counted[0].total, all.counted[0].used), (7, 2));
}
