import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

import tautline_sdk
from tautline_sdk import BadRule, CostRequest, EvaluateRequest, NotReady, Server, Tls
from tautline_sdk.proto.allocator_pb2 import ReserveRequest, ReserveResponse
from tautline_sdk.proto.allocator_pb2_grpc import (
    AllocatorServicer,
    AllocatorStub,
    add_AllocatorServicer_to_server,
)
from tautline_sdk.proto.ruleprovider_pb2 import Peer, PolicyRule
from tautline_sdk.proto.ruleprovider_pb2_grpc import RuleProviderStub
from tautline_sdk.server import parse, tls_of

DEADLINE = 30
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def spread(request: CostRequest) -> dict[str, int]:
    """The provider of the package's documentation."""
    peers = tautline_sdk.peer_counts(request)
    return {node: peers[node] for node in request.eligibleNodes}


def await_health(channel: grpc.Channel, status: int) -> None:
    for service in ("", "ruleprovider.RuleProvider"):
        request = health_pb2.HealthCheckRequest(service=service)
        stub = health_pb2_grpc.HealthStub(channel)
        for response in stub.Watch(request, timeout=DEADLINE):  # type: ignore[attr-defined]
            if response.status == status:
                break


@contextmanager
def serving(costs: tautline_sdk.CostFunction, **options: Any) -> Iterator[RuleProviderStub]:
    with Server(costs, listen="127.0.0.1:0", **options) as server, grpc.insecure_channel(server.address) as channel:
        await_health(channel, SERVING)
        yield RuleProviderStub(channel)


def refused(call: Callable[[], object]) -> str:
    try:
        call()
    except grpc.RpcError as error:
        assert isinstance(error, grpc.Call)
        return f"{error.code().name}: {error.details()}"
    raise AssertionError("the call was answered")


class ServerTest(unittest.TestCase):
    def test_costs_has_every_eligible_node(self) -> None:
        request = CostRequest(eligibleNodes=["a", "b", "c"], peers=[Peer(node=n) for n in ("b", "b", "", "other")])
        with serving(spread) as provider:
            response = provider.EndpointCost(request, timeout=DEADLINE)
            self.assertEqual([line.cost for line in response.nodeAndCost], [0, 2, 0])
            evaluated = provider.Evaluate(EvaluateRequest(), timeout=DEADLINE)
            self.assertEqual(evaluated.compliance, tautline_sdk.Compliance.COMPLIANT)

    def test_exceptions_become_statuses(self) -> None:
        failures: dict[str, tuple[BaseException, str]] = {
            "bad": (BadRule("limit 'few': write a number"), "INVALID_ARGUMENT: limit 'few': write a number"),
            "empty": (NotReady("no table"), "FAILED_PRECONDITION: not ready: no table"),
            "other": (KeyError("broken"), "INTERNAL: KeyError: 'broken'"),
            "exit": (SystemExit("no config"), "INTERNAL: SystemExit: no config"),
            "cancelled": (CancelledError("too late"), "INTERNAL: CancelledError: too late"),
            "long": (KeyError(100_000 * "ü"), f"INTERNAL: KeyError: '{989 * 'ü'} ..."),
        }

        def fail(request: CostRequest) -> NoReturn:
            raise failures[request.rule.name][0]

        with serving(fail) as provider, self.assertLogs("tautline_sdk", "ERROR") as logs:
            for rule, (_, text) in failures.items():
                request = CostRequest(rule=PolicyRule(name=rule))
                self.assertEqual(refused(lambda: provider.EndpointCost(request, timeout=DEADLINE)), text)
        self.assertEqual(len(logs.records), 4, "only the unexpected ones are logged")

    def test_calls_wait_for_load(self) -> None:
        proceed = threading.Event()
        with (
            Server(spread, load=lambda: assert_set(proceed), listen="127.0.0.1:0") as server,
            grpc.insecure_channel(server.address) as channel,
        ):
            provider = RuleProviderStub(channel)
            await_health(channel, NOT_SERVING)
            early = refused(lambda: provider.EndpointCost(CostRequest(), timeout=DEADLINE))
            self.assertEqual(early, "UNAVAILABLE: not ready: loading")
            proceed.set()
            await_health(channel, SERVING)
            provider.EndpointCost(CostRequest(), timeout=DEADLINE)

    def test_failed_load_ends_the_server(self) -> None:
        def load() -> NoReturn:
            raise FileNotFoundError("no table")

        with Server(spread, load=load, listen="127.0.0.1:0") as server:
            with self.assertRaisesRegex(FileNotFoundError, "no table"):
                server.wait()
        with Server(spread, load=lambda: sys.exit("no table"), listen="127.0.0.1:0") as server:
            with self.assertRaisesRegex(SystemExit, "no table"):
                server.wait()

    def test_stop_finishes_calls_in_progress(self) -> None:
        called, proceed = threading.Event(), threading.Event()

        def slow(request: CostRequest) -> dict[str, int]:
            called.set()
            assert_set(proceed)
            return spread(request)

        server = Server(slow, listen="127.0.0.1:0")
        server.start()
        with grpc.insecure_channel(server.address) as channel:
            await_health(channel, SERVING)
            answer = RuleProviderStub(channel).EndpointCost.future(CostRequest(), timeout=DEADLINE)
            assert_set(called)
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            await_closed(server.address)
            proceed.set()
            answer.result()
            stopping.join(DEADLINE)
            self.assertFalse(stopping.is_alive())

    def test_register_adds_an_allocator(self) -> None:
        class OneDevice(AllocatorServicer):
            def Reserve(self, request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
                if request.node == "full":
                    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no free device")
                return ReserveResponse(id="device-0")

        def register(server: grpc.Server) -> None:
            add_AllocatorServicer_to_server(OneDevice(), server)

        with (
            Server(spread, register=register, listen="127.0.0.1:0") as server,
            grpc.insecure_channel(server.address) as channel,
        ):
            await_health(channel, SERVING)
            allocator = AllocatorStub(channel)
            self.assertEqual(allocator.Reserve(ReserveRequest(), timeout=DEADLINE).id, "device-0")
            full = refused(lambda: allocator.Reserve(ReserveRequest(node="full"), timeout=DEADLINE))
            self.assertEqual(full, "FAILED_PRECONDITION: no free device")

    def test_server_names_the_fix(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with self.assertRaisesRegex(OSError, f"cannot listen on 127.0.0.1:{port}"):
                Server(spread, listen=f"127.0.0.1:{port}")
            # Also if another address of the name is free.
            with self.assertRaisesRegex(OSError, f"cannot listen on localhost:{port}"):
                Server(spread, listen=f"localhost:{port}")
        for listen in ("nowhere", "127.0.0.1:65536"):
            with self.assertRaisesRegex(ValueError, "write HOST:PORT"):
                Server(spread, listen=listen)
        with self.assertRaisesRegex(OSError, "^(?!cannot listen).*missing.crt"):
            Server(spread, listen="127.0.0.1:0", tls=Tls("missing.crt", "missing.key"))


def await_closed(address: str) -> None:
    host, _, port = address.rpartition(":")
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        try:
            socket.create_connection((host, int(port))).close()
        except OSError:
            return
        time.sleep(0.001)
    raise AssertionError("the stopping server accepts connections")


def assert_set(event: threading.Event) -> None:
    assert event.wait(DEADLINE)


class FlagsTest(unittest.TestCase):
    def test_flags_default_to_variables(self) -> None:
        variables = {"LISTEN": "127.0.0.1:1", "TLS_CERT": "tls.crt"}
        parser = argparse.ArgumentParser()
        arguments = parse(parser, variables, ["--tls-key", "tls.key", "--listen", ":0"])
        self.assertEqual(arguments.listen, ":0")
        self.assertEqual(tls_of(arguments), Tls("tls.crt", "tls.key"))
        self.assertIsNone(tls_of(parse(argparse.ArgumentParser(), {}, [])))
        with self.assertRaisesRegex(ValueError, "--tls-key is empty"):
            tls_of(parse(argparse.ArgumentParser(), variables, []))


STUCK = """
import threading, tautline_sdk, tautline_sdk.server
tautline_sdk.server.GRACE_SECONDS = 1
tautline_sdk.main(lambda request: threading.Event().wait())
"""


class StuckTest(unittest.TestCase):
    def test_function_that_never_returns_does_not_keep_the_process(self) -> None:
        environment = {**os.environ, "LISTEN": "127.0.0.1:0"}
        process = subprocess.Popen(
            [sys.executable, "-c", STUCK],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.addCleanup(process.kill)
        assert process.stdout is not None
        address = process.stdout.readline().removeprefix("listening on ").strip()
        with grpc.insecure_channel(address) as channel:
            await_health(channel, SERVING)
            refused(lambda: RuleProviderStub(channel).EndpointCost(CostRequest(), timeout=0.5))
            process.send_signal(signal.SIGTERM)
            _, printed = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 0, printed)
        self.assertIn("calls in progress are cut off after 1 s", printed)


EXAMPLE = Path(__file__).parents[2] / "examples/provider-python/provider.py"


@unittest.skipUnless(EXAMPLE.exists(), "not in Tautline's repository")
class ExampleTest(unittest.TestCase):
    def setUp(self) -> None:
        command = [sys.executable, str(EXAMPLE), "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.process.stdout.close if self.process.stdout else lambda: None)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().removeprefix("listening on ").strip()

    def test_example_stops_on_sigterm(self) -> None:
        with grpc.insecure_channel(self.address) as channel:
            await_health(channel, SERVING)
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(DEADLINE), 0)

    @unittest.skipUnless(os.environ.get("TAUTLINE"), "$TAUTLINE is not set; name the program to run tautline conformance")
    def test_example_conforms(self) -> None:
        with grpc.insecure_channel(self.address) as channel:
            await_health(channel, SERVING)
        command = [os.environ["TAUTLINE"], "conformance", self.address, "--rule", "spread"]
        # For busy machines.
        command += ["--deadline", "30s"]
        judged = subprocess.run(command, capture_output=True, text=True, timeout=10 * DEADLINE)
        self.assertEqual(judged.returncode, 0, judged.stdout + judged.stderr)
