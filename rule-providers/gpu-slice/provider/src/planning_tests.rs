use tautline_core::{
    model::Prefer,
    nodes::NodeSet,
    planning::{CostDetail, Costs, NodeVerdict, Plan, RuleAnswer, RuleOutcome},
};
use tautline_gpu_placement::policy::PolicyName;

use super::*;

/// The nodes' scores by `provider`, with this weight, and by the costs of another rule.
async fn planned(
    provider: &GpuSlice,
    request: &CostRequest,
    near: &[(&str, i64)],
    weight: u32,
) -> Vec<u8> {
    let nodes: NodeSet = near.iter().map(|(node, _)| *node).collect();
    let answer = provider
        .endpoint_cost(CostRequest {
            eligible_nodes: nodes.iter().map(str::to_owned).collect(),
            ..request.clone()
        })
        .await
        .unwrap();
    let (mut gpu, mut latency) = (Costs::new(nodes.len()), Costs::new(nodes.len()));
    gpu.resolution = answer.resolution;
    for line in answer.nodes() {
        let note = CostDetail {
            tie_break: line.tie_break,
            ..CostDetail::default()
        };
        gpu.add(&nodes, line.node, line.cost, note);
    }
    for (node, cost) in near {
        latency.add(&nodes, node, *cost, CostDetail::default());
    }
    let outcomes = [gpu, latency].map(RuleOutcome::Costs);
    let rule = |rule, weight, outcome| RuleAnswer {
        offer: 0,
        rule,
        weight,
        prefer: Prefer::default(),
        outcome,
    };
    let answers = [
        rule("gpu-slice", weight, &outcomes[0]),
        rule("latency", 1, &outcomes[1]),
    ];
    let plan = Plan::new(nodes.len(), &answers);
    plan.verdicts.iter().map(NodeVerdict::score).collect()
}

fn needs(request: &str) -> CostRequest {
    CostRequest {
        rule: Rule {
            name: "gpu-slice".into(),
            request: request.into(),
            ..Rule::default()
        },
        ..CostRequest::default()
    }
}

/// In some pairs the first name has the lower hash, in others the second.
const PAIRS: [[&str; 2]; 8] = [
    ["near", "far"],
    ["a", "b"],
    ["node-1", "node-2"],
    ["edge-eu", "edge-us"],
    ["gpu-7", "gpu-12"],
    ["rack1-n4", "rack9-n4"],
    ["ip-10-0-1-7", "ip-10-0-3-9"],
    ["worker-x", "worker-y"],
];

#[tokio::test]
async fn near_node_wins_among_nodes_with_equal_gpus() {
    for order in [NodeOrder::Mixed, NodeOrder::Named] {
        for policy in PolicyName::ALL {
            for pair in PAIRS {
                let store = ClusterStore::default();
                let config = Config {
                    policy,
                    order,
                    ..Config::default()
                };
                for name in pair {
                    store.apply(node(name, WHOLE, 8, &[]));
                }
                // Two more nodes make a scale that has the equal nodes between its ends.
                store.apply(node("emptier", WHOLE, 16, &[]));
                store.apply(node("fuller", WHOLE, 8, &[]));
                store.apply(pod("there", "fuller", WHOLE, 5));
                let provider = GpuSlice::new(store, config);
                for cards in ["1", "2"] {
                    for near in [0, 1] {
                        let far = 1 - near;
                        let costs = [(pair[near], 1_000), (pair[far], 9_000)];
                        let scores = planned(&provider, &needs(cards), &costs, 3).await;
                        assert_eq!(scores[0], 10, "{policy} {order:?} {pair:?} {scores:?}");
                        assert!(scores[1] < 10, "{policy} {order:?} {pair:?} {scores:?}");
                        let more = [("emptier", 5_000), ("fuller", 10_000)];
                        let all = [costs, more].concat();
                        let scores = planned(&provider, &needs(cards), &all, 3).await;
                        assert!(
                            scores[0] > scores[1],
                            "{policy} {order:?} {pair:?} beside others: {scores:?}"
                        );
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn nodes_are_filled_in_order_without_other_rules() {
    for pair in PAIRS {
        let store = ClusterStore::default();
        for name in pair {
            store.apply(node(name, WHOLE, 8, &[]));
        }
        let provider = GpuSlice::new(store, Config::default());
        let request = CostRequest {
            eligible_nodes: pair.map(str::to_owned).to_vec(),
            ..needs("2")
        };
        let answer = provider.endpoint_cost(request).await.unwrap();
        let cheapest = answer.nodes().into_iter().min_by_key(|n| n.cost).unwrap();
        let costs = pair.map(|name| (name, 7));
        let scores = planned(&provider, &needs("2"), &costs, 1).await;
        for (name, score) in pair.into_iter().zip(scores) {
            assert_eq!(name == cheapest.node, score == 10, "{pair:?}");
        }
    }
}

#[tokio::test]
async fn lost_gpu_counts_next_to_other_rules() {
    for pair in PAIRS {
        let store = ClusterStore::default();
        for name in pair {
            store.apply(node(name, WHOLE, 8, &[]));
        }
        // Two cards are left of one node, and only a whole node can serve some pods.
        store.apply(pod("there", pair[0], WHOLE, 6));
        store.apply(node("full", WHOLE, 8, &[]));
        store.apply(pod("large", "full", WHOLE, 8));
        let provider = GpuSlice::new(store, Config::default());
        let costs = [(pair[0], 9_000), (pair[1], 1_000)];
        let scores = planned(&provider, &needs("2"), &costs, 2).await;
        assert_eq!(scores[0], 10, "{pair:?} {scores:?}");
    }
}
