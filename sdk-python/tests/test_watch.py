import threading
import time
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import grpc

from tautline_sdk import BadRule, Changes, Cost, CostRequest, Costs, Server
from tautline_sdk.proto.ruleprovider_pb2 import CostUpdate, CostWatch, IndexedNode, OpenedQuestion, PolicyRule
from tautline_sdk.proto.ruleprovider_pb2_grpc import RuleProviderStub

from .test_server import DEADLINE, assert_set, refused, serving


def nodes(*names: str) -> list[IndexedNode]:
    """Gives the nodes the indexes 0, 1, 2."""
    return [IndexedNode(index=index, name=name) for index, name in enumerate(names)]


def question(id: int, rule: str = "") -> OpenedQuestion:
    return OpenedQuestion(id=id, question=CostRequest(rule=PolicyRule(name=rule)))


class Caller:
    """A caller of WatchCosts, with what it has been told."""

    def __init__(self, provider: RuleProviderStub) -> None:
        self._sent: SimpleQueue[CostWatch | None] = SimpleQueue()
        self._sequence = 0
        self.call = provider.WatchCosts(iter(self._sent.get, None), timeout=DEADLINE)
        self.through = 0
        self.costs: dict[tuple[int, int], int] = {}
        """By question and node."""
        self.failures: dict[int, str] = {}

    def send(self, **parts: Any) -> None:
        self._sequence += 1
        self._sent.put(CostWatch(sequence=self._sequence, **parts))

    def close(self) -> None:
        self._sent.put(None)

    def receive(self) -> CostUpdate:
        update = next(self.call)
        assert isinstance(update, CostUpdate)
        for costs in update.costs:
            self.failures.pop(costs.question, None)
            for line in costs.lines:
                self.costs[costs.question, line.index] = line.cost
        for failure in update.failures:
            self.failures[failure.question] = f"{failure.code}: {failure.message}"
        self.through = max(self.through, update.through)
        return update

    def until(self, condition: Callable[[], bool]) -> None:
        """Receives until the condition holds; the call's timeout ends it otherwise."""
        while not condition():
            self.receive()

    def until_through(self) -> None:
        self.until(lambda: self.through == self._sequence)

    def end(self) -> str:
        """Receives until the stream fails."""
        return refused(lambda: self.until(lambda: False))


@contextmanager
def watching(costs: Callable[[CostRequest], Any], changes: Changes) -> Iterator[Caller]:
    with serving(costs, changes=changes) as provider:
        caller = Caller(provider)
        yield caller
        caller.close()


class Table:
    """Costs that a test changes."""

    def __init__(self) -> None:
        self.costs = {"a": 1, "b": 2, "c": 3}

    def __call__(self, request: CostRequest) -> dict[str, int]:
        return {node: self.costs[node] for node in request.eligibleNodes}


class WatchTest(unittest.TestCase):
    def setUp(self) -> None:
        self.table, self.changes = Table(), Changes()

    def test_first_costs_have_every_node(self) -> None:
        def costs(request: CostRequest) -> Costs:
            return Costs(self.table(request), resolution=7, request_cost=0)

        with watching(costs, self.changes) as caller:
            caller.send(addedNodes=nodes("a", "b"), openedQuestions=[question(1), question(2)])
            while not caller.costs:
                update = caller.receive()
            self.assertEqual((update.costs[0].resolution, update.costs[0].HasField("requestCost")), (7, True))
            caller.until_through()
            self.assertEqual(caller.costs, {(1, 0): 1, (1, 1): 2, (2, 0): 1, (2, 1): 2})
            self.assertEqual(caller.receive(), CostUpdate(through=1), "the stream is alive")

    def test_only_changed_nodes_are_sent_again(self) -> None:
        with watching(self.table, self.changes) as caller:
            caller.send(addedNodes=nodes("a", "b"), openedQuestions=[question(1)])
            caller.until_through()
            self.table.costs = {"a": 11, "b": 12}
            self.changes.changed("a", "elsewhere")
            caller.until(lambda: caller.costs[1, 0] == 11)
            self.assertEqual(caller.costs[1, 1], 2)
            self.changes.changed_all()
            caller.until(lambda: caller.costs[1, 1] == 12)

    def test_nodes_and_questions_come_and_go(self) -> None:
        with watching(self.table, self.changes) as caller:
            caller.send(addedNodes=nodes("a", "b"), openedQuestions=[question(1)])
            caller.until_through()
            caller.send(addedNodes=[IndexedNode(index=7, name="c")])
            caller.until_through()
            self.assertEqual(caller.costs, {(1, 0): 1, (1, 1): 2, (1, 7): 3})
            # The index 0 stands for another node, and the question 2 comes for the question 1.
            caller.costs.clear()
            caller.send(
                removedNodes=[0, 7, 999],
                addedNodes=[IndexedNode(index=0, name="c")],
                closedQuestions=[1, 999],
                openedQuestions=[question(2)],
            )
            caller.until_through()
            self.assertEqual(caller.costs, {(2, 0): 3, (2, 1): 2})
            self.changes.changed("a")
            self.table.costs["c"] = 33
            self.changes.changed("c")
            caller.until(lambda: caller.costs[2, 0] == 33)
            self.assertEqual(caller.costs, {(2, 0): 33, (2, 1): 2})

    def test_failed_question_is_asked_again(self) -> None:
        errors: dict[str, BaseException] = {"bad": BadRule("write a number"), "broken": SystemExit("\udc80")}

        def costs(request: CostRequest) -> dict[str, int]:
            if request.rule.name in errors:
                raise errors[request.rule.name]
            return self.table(request)

        with watching(costs, self.changes) as caller, self.assertLogs("tautline_sdk", "ERROR") as logs:
            caller.send(
                addedNodes=nodes("a"), openedQuestions=[question(1, "bad"), question(2, "broken"), question(3)]
            )
            caller.until_through()
            self.assertEqual(caller.failures, {1: "3: write a number", 2: "13: SystemExit: ?"})
            self.assertEqual(caller.costs, {(3, 0): 1})
            errors.clear()
            caller.until(lambda: not caller.failures)
            self.assertEqual(caller.costs, {(1, 0): 1, (2, 0): 1, (3, 0): 1})
        self.assertEqual(len(logs.records), 1, "a failure that stays is logged once")

    def test_change_during_the_computation_is_not_lost(self) -> None:
        called, proceed = threading.Event(), threading.Event()

        def slow(request: CostRequest) -> dict[str, int]:
            costs = self.table(request)
            called.set()
            assert_set(proceed)
            return costs

        with watching(slow, self.changes) as caller:
            caller.send(addedNodes=nodes("a"), openedQuestions=[question(1)])
            assert_set(called)
            self.table.costs["a"] = 11
            self.changes.changed("a")
            proceed.set()
            caller.until_through()
            caller.until(lambda: caller.costs[1, 0] == 11)

    def test_large_answers_are_split(self) -> None:
        names = [f"node-{number}" for number in range(20_000)]

        def costs(request: CostRequest) -> dict[str, Cost]:
            return {node: Cost(1, 100 * "x") for node in request.eligibleNodes}

        with watching(costs, self.changes) as caller:
            caller.send(addedNodes=nodes(*names), openedQuestions=[question(1), question(2)])
            while caller.through == 0:
                update = caller.receive()
                self.assertLess(update.ByteSize(), 3 << 19)
            self.assertEqual(len(caller.costs), 40_000)

    def test_caller_that_has_said_all_is_answered(self) -> None:
        with watching(self.table, self.changes) as caller:
            caller.send(addedNodes=nodes("a"), openedQuestions=[question(1)])
            caller.close()
            caller.until_through()
            self.assertEqual(caller.costs, {(1, 0): 1})
            with self.assertRaises(StopIteration):
                caller.until(lambda: False)

    def test_questions_are_bounded(self) -> None:
        with watching(self.table, self.changes) as caller:
            large = OpenedQuestion(id=1, question=CostRequest(peerNodes=[(8 << 20) * "x"]))
            for id in range(1, 9):
                large.id = id
                caller.send(openedQuestions=[large])
            caller.until_through()
            text = "8: a stream has at most 512 questions, of 67108864 bytes together"
            self.assertEqual(caller.failures, {8: text})
            caller.send(closedQuestions=range(1, 9), openedQuestions=[question(id) for id in range(600)])
            caller.until_through()
            self.assertEqual(caller.failures, {id: text for id in range(512, 600)})

    def test_invalid_messages_end_the_stream(self) -> None:
        too_many = "RESOURCE_EXHAUSTED: a stream has at most 100000 nodes, with indexes below 1000000 and names"
        cases: list[tuple[dict[str, Any], str]] = [
            ({"addedNodes": [IndexedNode(index=1_000_000, name="a")]}, too_many),
            ({"addedNodes": [IndexedNode(index=0, name=254 * "a")]}, too_many),
            ({"addedNodes": nodes(*map(str, range(100_001)))}, too_many),
            ({"sequence": 1}, "INVALID_ARGUMENT: sequence 1 comes after 1"),
        ]
        with serving(self.table, changes=self.changes) as provider:
            for parts, text in cases:
                caller = Caller(provider)
                caller.send()
                caller._sent.put(CostWatch(**{"sequence": 2, **parts}))
                self.assertIn(text, caller.end())
                caller.close()

    def test_streams_are_bounded_and_leave_room_for_calls(self) -> None:
        with serving(self.table, changes=self.changes) as provider:
            callers = [Caller(provider) for _ in range(4)]
            for caller in callers:
                caller.send()
                caller.until_through()
            self.assertEqual(Caller(provider).end(), "RESOURCE_EXHAUSTED: too many streams of WatchCosts: 4")
            calls = [provider.EndpointCost.future(CostRequest(), timeout=DEADLINE) for _ in range(100)]
            for call in calls:
                call.result()
            for caller in callers:
                caller.call.cancel()
            await_no_threads()
            opened(provider).close()

    def test_stop_ends_streams(self) -> None:
        server = Server(self.table, changes=self.changes, listen="127.0.0.1:0")
        server.start()
        with grpc.insecure_channel(server.address) as channel:
            caller = opened(RuleProviderStub(channel))
            begun = time.monotonic()
            server.stop()
            self.assertLess(time.monotonic() - begun, 10)
            self.assertFalse(server.is_busy())
            self.assertEqual(caller.end(), "UNAVAILABLE: the provider stops")
        await_no_threads()

    def test_streams_wait_for_load(self) -> None:
        proceed = threading.Event()
        with (
            Server(
                self.table, changes=self.changes, load=lambda: assert_set(proceed), listen="127.0.0.1:0"
            ) as server,
            grpc.insecure_channel(server.address) as channel,
        ):
            provider = RuleProviderStub(channel)
            self.assertEqual(Caller(provider).end(), "UNAVAILABLE: not ready: loading")
            proceed.set()
            opened(provider).close()

    def test_provider_without_changes_has_no_streams(self) -> None:
        with serving(self.table) as provider:
            self.assertIn("UNIMPLEMENTED: ", Caller(provider).end())


def opened(provider: RuleProviderStub) -> Caller:
    """Opens a stream as soon as the provider serves one."""
    end = time.monotonic() + DEADLINE
    while True:
        caller = Caller(provider)
        caller.send()
        try:
            caller.until_through()
            return caller
        except grpc.RpcError:
            caller.close()
            if time.monotonic() > end:
                raise


def await_no_threads() -> None:
    """Waits until the readers of all streams have ended, and the streams with them."""
    end = time.monotonic() + DEADLINE
    for thread in threading.enumerate():
        if thread.name == "watch":
            thread.join(end - time.monotonic())
            assert not thread.is_alive()


class ChangesTest(unittest.TestCase):
    def test_many_names_become_a_change_of_all(self) -> None:
        changes = Changes()
        changes.changed("a", "b")
        changes.changed("b")
        self.assertEqual(changes._since(1), (2, {"b"}))
        changes.changed(*map(str, range(9_998)))
        self.assertEqual(changes._since(3), (3, set()))
        changes.changed("c")
        self.assertEqual(changes._since(3), (4, None))
        self.assertEqual(changes._since(4), (4, set()))
        changes.changed()
        self.assertEqual(changes._since(4), (5, set()))
