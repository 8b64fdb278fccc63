"""The state of a stream of WatchCosts: nodes, and open questions about them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import grpc

from .answers import CostFunction, CostRequest, cost_response
from .proto.ruleprovider_pb2 import (
    CostUpdate,
    CostWatch,
    EndpointCostResponse,
    IndexedCost,
    OpenedQuestion,
    QuestionCosts,
    QuestionFailure,
)
from .service import status_of

# Bounds, as anybody may connect.
_QUESTIONS = 512
_QUESTION_BYTES = 64 << 20
_NODES = 100_000
_INDEXES = 1_000_000
_NAME_CHARACTERS = 253

_PART_BYTES = 64 << 10

_log = logging.getLogger("tautline_sdk")


@dataclass(slots=True)
class _Question:
    request: CostRequest
    size: int
    has_costs: bool = False
    failure: tuple[grpc.StatusCode, str] | None = None


class Stream:
    """What the messages of a stream have said."""

    def __init__(self, costs: CostFunction) -> None:
        self._costs = costs
        self._nodes: dict[int, str] = {}
        self._added: set[int] = set()
        self._questions: dict[int, _Question] = {}
        self._size = 0
        self._refused: set[int] = set()
        self.through = 0

    def apply(self, message: CostWatch, context: grpc.ServicerContext) -> None:
        """Takes a message in, or aborts the call."""
        if message.sequence <= self.through:
            text = f"sequence {message.sequence} comes after {self.through}: count the messages of a stream"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        self.through = message.sequence
        for index in message.removedNodes:
            self._nodes.pop(index, None)
            self._added.discard(index)
        for node in message.addedNodes:
            self._nodes[node.index] = node.name
            self._added.add(node.index)
            if node.index >= _INDEXES or len(node.name) > _NAME_CHARACTERS or len(self._nodes) > _NODES:
                text = f"a stream has at most {_NODES} nodes, with indexes below {_INDEXES} and names of at most "
                text += f"{_NAME_CHARACTERS} characters"
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        for id in message.closedQuestions:
            self._close(id)
        for opened in message.openedQuestions:
            self._open(opened)

    def _close(self, id: int) -> None:
        self._refused.discard(id)
        question = self._questions.pop(id, None)
        if question is not None:
            self._size -= question.size

    def _open(self, opened: OpenedQuestion) -> None:
        self._close(opened.id)
        size = opened.question.ByteSize()
        if len(self._questions) >= _QUESTIONS or self._size + size > _QUESTION_BYTES:
            self._refused.add(opened.id)
            return
        self._questions[opened.id] = _Question(opened.question, size)
        self._size += size

    def parts(self, changed: set[str] | None) -> Iterator[CostUpdate]:
        """Yields what is new since the last time, in small parts; changed: nodes, None: all."""
        for id in self._refused:
            text = f"a stream has at most {_QUESTIONS} questions, of {_QUESTION_BYTES} bytes together"
            yield _failed(id, grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        some = self._added
        if changed:
            some = some | {index for index, name in self._nodes.items() if name in changed}
        self._refused, self._added = set(), set()
        for id, question in self._questions.items():
            indexes = list(self._nodes if changed is None or not question.has_costs else some)
            if indexes or not question.has_costs:
                yield from self._answer(id, question, indexes)

    def _answer(self, id: int, question: _Question, indexes: list[int]) -> Iterator[CostUpdate]:
        request = CostRequest()
        request.CopyFrom(question.request)
        request.eligibleNodes[:] = [self._nodes[index] for index in indexes]
        previous, question.failure = question.failure, None
        try:
            response = cost_response(self._costs(request), request)
        # Also sys.exit: the other questions go on.
        except BaseException as error:
            question.failure = status_of(error)
            # It is asked again and again.
            if question.failure != previous and question.failure[0] is grpc.StatusCode.INTERNAL:
                _log.exception("WatchCosts: question %s failed", id)
        question.has_costs = question.failure is None
        if question.failure is None:
            yield from _lines(id, indexes, response)
        elif question.failure != previous:
            yield _failed(id, *question.failure)


def _lines(id: int, indexes: list[int], response: EndpointCostResponse) -> Iterator[CostUpdate]:
    request_cost = response.requestCost if response.HasField("requestCost") else None
    lines: list[IndexedCost] = []
    size = 0

    def part() -> CostUpdate:
        costs = QuestionCosts(question=id, lines=lines, resolution=response.resolution, requestCost=request_cost)
        return CostUpdate(costs=[costs])

    for index, line in zip(indexes, response.nodeAndCost):
        lines.append(
            IndexedCost(
                index=index,
                cost=line.cost,
                reason=line.reason,
                detail=line.detail,
                freeable=line.freeable,
                tieBreak=line.tieBreak,
            )
        )
        size += lines[-1].ByteSize()
        if size >= _PART_BYTES:
            yield part()
            lines, size = [], 0
    yield part()


def _failed(id: int, code: grpc.StatusCode, text: str) -> CostUpdate:
    return CostUpdate(failures=[QuestionFailure(question=id, code=code.value[0], message=text)])
