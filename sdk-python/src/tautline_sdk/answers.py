"""What a provider's functions get and return."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from .proto import ruleprovider_pb2
from .proto.ruleprovider_pb2 import EndpointCostResponse, EvaluateResponse, NodeCost

CostRequest = ruleprovider_pb2.EndpointCostRequest
"""Asks for the cost of each of its eligibleNodes."""

EvaluateRequest = ruleprovider_pb2.EvaluateRequest
"""Asks whether placed objects comply with a rule."""

_CODE = re.compile(r"[A-Z][A-Za-z]{0,39}", re.ASCII)
_MAX_COST = 2**63 - 1


class BadRule(ValueError):
    """The rule's request or limit is invalid; name the field and the fix. The caller gets
    INVALID_ARGUMENT."""


class NotReady(Exception):
    """There is no data yet. The caller gets FAILED_PRECONDITION, and does not count it as a failure
    of the provider."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a usable node, with more than its number."""

    cost: int
    """Lower is better, from 0 on."""
    detail: str = ""
    """For people; may have figures."""
    tie_break: int = 0
    """The part of the cost that only orders equally good nodes."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """A node that cannot be used."""

    code: str
    """Short, stable, without figures, such as OverLimit."""
    detail: str = ""
    """For people; may have figures."""
    freeable: bool = False
    """The node could be used if pods on it were removed."""


NodeCosts = Mapping[str, int | Cost | Unusable]


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of nodes, with what holds for all of them."""

    nodes: NodeCosts
    """By name. Eligible nodes that are missing cannot be used; others are ignored."""
    resolution: int = 0
    """The difference up to which costs are equally good; 0: every difference counts."""
    request_cost: int | None = None
    """The cost of a node that just meets the rule's request: nodes of at most this cost are within the
    request, and equally good unless the policy prefers the nearest. None: the rule has no request, or
    none that a cost stands for."""


class Compliance(IntEnum):
    """The states of Evaluate, in order of severity."""

    PENDING = 0
    COMPLIANT = 1
    LIMIT = 2
    VIOLATION = 3
    ERROR = 4


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The compliance of placed objects, and the reason for people."""

    compliance: Compliance
    reason: str = ""


CostFunction = Callable[[CostRequest], NodeCosts | Costs]
"""Returns the cost of each eligible node. kube-scheduler waits: answer from memory, within a few
milliseconds. Called concurrently."""

EvaluateFunction = Callable[[EvaluateRequest], Evaluation]
"""Returns whether placed objects comply with the rule. Called concurrently."""


def peer_counts(request: CostRequest) -> Counter[str]:
    """Counts the peers of each node. Callers that send peerNodes only do not say how many they are:
    then each has 1."""
    if request.peers:
        return Counter(peer.node for peer in request.peers if peer.node)
    return Counter(set(request.peerNodes))


def cost_response(answer: NodeCosts | Costs, request: CostRequest) -> EndpointCostResponse:
    """Has exactly the eligible nodes, in their order.

    Raises TypeError or ValueError for the provider's author.
    """
    costs = answer if isinstance(answer, Costs) else Costs(answer)
    if not isinstance(costs.nodes, Mapping):
        raise TypeError(f"the costs are {costs.nodes!r}: return a dict of nodes and their costs, or Costs")
    resolution = _index(costs.resolution, f"resolution is {costs.resolution!r}: write an int, in the unit of the costs")
    request_cost = None
    if costs.request_cost is not None:
        text = f"request_cost is {costs.request_cost!r}: write an int, in the unit of the costs, or None"
        request_cost = _index(costs.request_cost, text)
    if resolution < 0:
        raise ValueError(f"resolution is {resolution}: it may not be negative")
    no_cost = Unusable("NoCost", "the provider gave no cost")
    return EndpointCostResponse(
        nodeAndCost=[_line(node, costs.nodes.get(node, no_cost)) for node in request.eligibleNodes],
        resolution=resolution,
        requestCost=request_cost,
    )


def _line(node: str, cost: int | Cost | Unusable) -> NodeCost:
    if isinstance(cost, Unusable):
        if not isinstance(cost.code, str) or not _CODE.fullmatch(cost.code):
            raise ValueError(
                f"node {node!r} has the code {cost.code!r}: write a capital letter and up to 39 more "
                "letters, such as OverLimit"
            )
        return NodeCost(node=node, cost=-1, reason=cost.code, detail=_text(node, cost.detail), freeable=cost.freeable)
    full = cost if isinstance(cost, Cost) else Cost(_integer(node, cost))
    number = _integer(node, full.cost)
    if not 0 <= number <= _MAX_COST:
        raise ValueError(
            f"node {node!r} costs {number}: a cost is 0 to 2^63-1; for a node that cannot be used return Unusable"
        )
    text = f"node {node!r} has the tie break {full.tie_break!r}: write an int, in the unit of the costs"
    tie_break = _index(full.tie_break, text)
    if not 0 <= tie_break <= number:
        raise ValueError(f"node {node!r} has the tie break {tie_break}: it is a part of the cost, from 0 to {number}")
    return NodeCost(node=node, cost=number, detail=_text(node, full.detail), tieBreak=tie_break)


def _text(node: str, detail: object) -> str:
    if not isinstance(detail, str):
        raise TypeError(f"node {node!r} has the detail {detail!r}: write a string")
    return detail


def _integer(node: str, value: object) -> int:
    return _index(value, f"node {node!r} costs {value!r}: return an int, a Cost or an Unusable")


def _index(value: object, text: str) -> int:
    """An integer of any type, such as one of numpy."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(text) from None


def evaluate_response(evaluation: Evaluation) -> EvaluateResponse:
    """Raises TypeError for the provider's author."""
    if not isinstance(evaluation, Evaluation):
        raise TypeError(f"the evaluation is {evaluation!r}: return an Evaluation")
    state = EvaluateResponse.ComplianceState.Name(Compliance(evaluation.compliance))
    return EvaluateResponse(compliance=state, reason=evaluation.reason)
