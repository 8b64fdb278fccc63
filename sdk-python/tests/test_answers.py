import unittest
from typing import Any

from tautline_sdk import Compliance, Cost, CostRequest, Costs, Evaluation, Unusable, peer_counts
from tautline_sdk.answers import cost_response, evaluate_response
from tautline_sdk.proto.ruleprovider_pb2 import Peer


class CostResponseTest(unittest.TestCase):
    def test_response_has_exactly_the_eligible_nodes(self) -> None:
        answer = Costs(
            {
                "elsewhere": 1,
                "b": Unusable("OverLimit", "9ms > 5ms", freeable=True),
                "a": 2**63 - 1,
                "d": Cost(5, "near", tie_break=5),
            },
            resolution=7,
            request_cost=0,
        )
        response = cost_response(answer, CostRequest(eligibleNodes=["a", "b", "c", "d"]))
        lines = [(line.node, line.cost, line.reason, line.freeable) for line in response.nodeAndCost]
        self.assertEqual(
            lines,
            [
                ("a", 2**63 - 1, "", False),
                ("b", -1, "OverLimit", True),
                ("c", -1, "NoCost", False),
                ("d", 5, "", False),
            ],
        )
        self.assertEqual(response.nodeAndCost[3].tieBreak, 5)
        self.assertEqual(response.resolution, 7)
        self.assertTrue(response.HasField("requestCost"))
        unsaid = cost_response({}, CostRequest())
        self.assertFalse(unsaid.HasField("requestCost"))

    def test_invalid_costs_name_the_node_and_the_fix(self) -> None:
        cases: list[tuple[Any, str]] = [
            ({"a": -3}, "node 'a' costs -3: a cost is 0 to"),
            ({"a": 2**63}, "a cost is 0 to 2^63-1"),
            ({"a": 1.5}, "node 'a' costs 1.5: return an int"),
            ({"a": True}, "node 'a' costs True: return an int"),
            ({"a": None}, "node 'a' costs None: return an int"),
            ({"a": Cost(5, tie_break=6)}, "the tie break 6: it is a part"),
            ({"a": Unusable("over limit")}, "the code 'over limit': write a capital letter"),
            ({"a": Unusable("")}, "the code ''"),
            ({"a": Unusable(None)}, "node 'a' has the code None"),  # type: ignore[arg-type]
            ({"a": Unusable("Grün")}, "the code 'Grün'"),
            ({"a": Unusable("A" + 40 * "a")}, "the code 'Aaaa"),
            ([("a", 1)], "return a dict"),
            (Costs({}, resolution=-1), "resolution is -1: it may not be negative"),
            (Costs({}, resolution=1.5), "resolution is 1.5: write an int"),  # type: ignore[arg-type]
            (Costs({}, request_cost="5ms"), "request_cost is '5ms': write an int"),  # type: ignore[arg-type]
            ({"a": Cost(5, tie_break=0.5)}, "node 'a' has the tie break 0.5: write an int"),  # type: ignore[arg-type]
            ({"a": Cost(5, detail=5)}, "node 'a' has the detail 5: write a string"),  # type: ignore[arg-type]
            ({"a": Unusable("Bad", 5)}, "node 'a' has the detail 5: write a string"),  # type: ignore[arg-type]
        ]
        for answer, text in cases:
            with self.subTest(answer), self.assertRaises((TypeError, ValueError)) as raised:
                cost_response(answer, CostRequest(eligibleNodes=["a"]))
            self.assertIn(text, str(raised.exception))

    def test_evaluate_response_has_the_state(self) -> None:
        for state in Compliance:
            response = evaluate_response(Evaluation(state, "why"))
            self.assertEqual((response.compliance, response.reason), (state, "why"))
        wrong: Any = True
        with self.assertRaisesRegex(TypeError, "return an Evaluation"):
            evaluate_response(wrong)


class PeerCountsTest(unittest.TestCase):
    def test_peer_counts_falls_back_to_peer_nodes(self) -> None:
        request = CostRequest(peerNodes=["a", "b"])
        self.assertEqual(peer_counts(request), {"a": 1, "b": 1})
        request.peers.extend(Peer(node=node) for node in ("a", "a", "b", ""))
        self.assertEqual(peer_counts(request), {"a": 2, "b": 1})
        self.assertEqual(peer_counts(request)["c"], 0)
