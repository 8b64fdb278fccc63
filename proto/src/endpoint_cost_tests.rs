use proptest::{collection::vec, prelude::*};
use prost::Message;

use super::*;
use crate::ruleprovider::{self as wire, EndpointCostRequest, EndpointCostResponse};

fn line(node: &wire::NodeCost) -> NodeCost<'_> {
    NodeCost {
        node: &node.node,
        cost: node.cost,
        code: &node.reason,
        detail: &node.detail,
        freeable: node.freeable,
        tie_break: node.tie_break,
    }
}

fn number() -> impl Strategy<Value = i64> {
    any::<i64>().prop_map(|n| if n % 3 == 0 { n } else { n % 200 })
}

fn any_node() -> impl Strategy<Value = wire::NodeCost> {
    let text = ".{0,40}|[a-z]{120,140}";
    let reason = "([A-Z][a-z]+)?";
    (text, number(), reason, text, any::<bool>(), number()).prop_map(
        |(node, cost, reason, detail, freeable, tie_break)| wire::NodeCost {
            node,
            cost,
            reason,
            detail,
            freeable,
            tie_break,
        },
    )
}

fn unknown() -> impl Strategy<Value = Vec<u8>> {
    (23u32..9_000, vec(any::<u8>(), 0..9)).prop_map(|(tag, bytes)| {
        let mut out = Vec::new();
        prost::encoding::bytes::encode(tag, &bytes, &mut out);
        out
    })
}

fn any_request() -> impl Strategy<Value = EndpointCostRequest> {
    (
        vec(".{0,9}", 0..4),
        vec(".{0,70}", 0..9),
        ".{0,9}",
        any::<bool>(),
    )
        .prop_map(
            |(peer_nodes, eligible_nodes, text, more)| EndpointCostRequest {
                source: more.then(|| wire::Target {
                    name: text.clone(),
                    ..wire::Target::default()
                }),
                workload: more.then(|| wire::Workload {
                    labels: [(text.clone(), text.clone())].into(),
                    ..wire::Workload::default()
                }),
                peers: vec![wire::Peer::default(); usize::from(more)],
                rule: Some(wire::PolicyRule {
                    name: text,
                    ..wire::PolicyRule::default()
                }),
                peer_nodes,
                eligible_nodes,
                in_flight: vec![wire::InFlightPod::default(); usize::from(more)],
            },
        )
}

fn any_scale() -> impl Strategy<Value = CostScale> {
    let request_cost = proptest::option::of(number());
    (number(), request_cost).prop_map(|(resolution, request_cost)| CostScale {
        resolution,
        request_cost,
    })
}

fn answer(node_and_cost: Vec<wire::NodeCost>, scale: CostScale) -> EndpointCostResponse {
    EndpointCostResponse {
        node_and_cost,
        resolution: scale.resolution,
        request_cost: scale.request_cost,
    }
}

fn read(data: &[u8]) -> Result<EndpointCostRequest, MalformedMessage> {
    let mut nodes = Vec::new();
    let rest = read_eligible_nodes(data, |node| nodes.push(node.to_owned()))?;
    let mut request = EndpointCostRequest::decode(&*rest)?;
    request.eligible_nodes = nodes;
    Ok(request)
}

proptest! {
    #[test]
    fn put_agrees_with_prost(nodes in vec(any_node(), 0..9), scale in any_scale()) {
        let mut ours = Vec::new();
        nodes.iter().for_each(|n| line(n).put(&mut ours));
        put_scale(scale, &mut ours);
        prop_assert_eq!(ours, answer(nodes, scale).encode_to_vec());
    }

    #[test]
    fn read_answer_agrees_with_prost(
        nodes in vec(any_node(), 0..9), scale in any_scale(), more in unknown()
    ) {
        let answer = answer(nodes, scale);
        let bytes = [more.clone(), answer.encode_to_vec(), more].concat();
        let mut lines = Vec::new();
        prop_assert_eq!(read_answer(&bytes, |l| lines.push(l)).unwrap(), scale);
        prop_assert_eq!(lines, answer.node_and_cost.iter().map(line).collect::<Vec<_>>());
    }

    #[test]
    fn read_eligible_nodes_agrees_with_prost(request in any_request(), more in unknown()) {
        let bytes = [more.clone(), request.encode_to_vec(), more].concat();
        prop_assert_eq!(read(&bytes).unwrap(), request);
    }

    #[test]
    fn put_eligible_node_agrees_with_prost(eligible_nodes in vec(".{0,140}", 0..9)) {
        let mut ours = Vec::new();
        eligible_nodes.iter().for_each(|n| put_eligible_node(n, &mut ours));
        let request = EndpointCostRequest { eligible_nodes, ..EndpointCostRequest::default() };
        prop_assert_eq!(ours, request.encode_to_vec());
    }

    #[test]
    fn garbage_is_an_error(
        bytes in vec(any::<u8>(), 0..60),
        request in any_request(),
        (at, to) in (any::<prop::sample::Index>(), any::<u8>()),
    ) {
        let mut broken = request.encode_to_vec();
        if !broken.is_empty() {
            let at = at.index(broken.len());
            broken[at] = to;
        }
        for data in [&bytes, &broken] {
            let (ours, theirs) = (read(data), EndpointCostRequest::decode(&**data));
            prop_assert_eq!(ours.ok(), theirs.ok());
        }
        let (ours, theirs) = (read_answer(&bytes, drop), EndpointCostResponse::decode(&*bytes));
        if let Ok(theirs) = theirs {
            let scale = ours.unwrap();
            prop_assert_eq!(answer(theirs.node_and_cost.clone(), scale), theirs);
        }
    }
}

#[test]
fn decoding_errors_are_specific() {
    let of = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert_eq!(of(&[4 << 3 | 2, 1, 0xff]), "a text is not UTF-8");
    assert_eq!(
        of(&[4 << 3 | 2, 9, b'a']),
        "a field is longer than the message"
    );
    assert!(read(&[4 << 3, 1]).is_err(), "a number instead of a text");
}
