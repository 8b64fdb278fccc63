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
    fn put_eligible_node_agrees_with_prost(eligible_nodes in vec(".{0,140}", 0..9)) {
        let mut ours = Vec::new();
        eligible_nodes.iter().for_each(|n| put_eligible_node(n, &mut ours));
        let request = EndpointCostRequest { eligible_nodes, ..EndpointCostRequest::default() };
        prop_assert_eq!(ours, request.encode_to_vec());
    }

    #[test]
    fn garbage_is_an_error(
        bytes in vec(any::<u8>(), 0..60),
        nodes in vec(any_node(), 0..9),
        (at, to) in (any::<prop::sample::Index>(), any::<u8>()),
    ) {
        let mut broken = answer(nodes, CostScale::default()).encode_to_vec();
        if !broken.is_empty() {
            let at = at.index(broken.len());
            broken[at] = to;
        }
        for data in [&bytes, &broken] {
            let (ours, theirs) = (read_answer(data, drop), EndpointCostResponse::decode(&**data));
            if let Ok(theirs) = theirs {
                prop_assert_eq!(answer(theirs.node_and_cost.clone(), ours.unwrap()), theirs);
            }
        }
    }
}

#[test]
fn decoding_errors_are_specific() {
    let of = |bytes: &[u8]| read_answer(bytes, drop).unwrap_err().to_string();
    assert_eq!(
        of(&[1 << 3 | 2, 3, 1 << 3 | 2, 1, 0xff]),
        "a text is not UTF-8"
    );
    assert_eq!(
        of(&[1 << 3 | 2, 9, b'a']),
        "a field is longer than the message"
    );
}
