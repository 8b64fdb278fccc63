"""A provider's server: gRPC with health, TLS, and a graceful stop."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from types import TracebackType

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from .answers import CostFunction, EvaluateFunction
from .proto.ruleprovider_pb2_grpc import add_RuleProviderServicer_to_server
from .service import Gate, RuleService
from .tls import Tls, TlsFiles
from .watch import STREAMS, Changes, Watches

PORT = 5309
GRACE_SECONDS = 20
"""How long calls in progress may take after the stop."""
CALLS = 64
"""How many calls are answered at once, those of health too, beside the streams of WatchCosts."""

_OPTIONS = [
    # A second provider on the port fails instead of taking half of the calls.
    ("grpc.so_reuseport", 0),
    # Fits 100,000 node names of 63 bytes.
    ("grpc.max_receive_message_length", 16 << 20),
    # Tautline pings idle connections every 10 s.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
]


_log = logging.getLogger("tautline_sdk")


def _check_free(host: str, port: int) -> None:
    """gRPC is content with one of a name's addresses, and another process may have the others."""
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            # An address of a machine without IPv6 is no fault.
            if error.errno == errno.EADDRINUSE:
                raise


class Server:
    """A server with a bound port; serves in threads of its own between start and stop, or in a
    with block."""

    address: str
    """HOST:PORT."""

    def __init__(
        self,
        costs: CostFunction,
        *,
        evaluate: EvaluateFunction | None = None,
        changes: Changes | None = None,
        load: Callable[[], None] | None = None,
        register: Callable[[grpc.Server], None] | None = None,
        listen: str = f":{PORT}",
        tls: Tls | None = None,
    ) -> None:
        """Binds the port.

        evaluate: None means that placed objects comply, for rules that count only when a pod is placed.
        changes: says when costs change; callers then have them before they ask. None: they ask for each pod.
        load: gets the data that the functions need. Until it returns, health is NOT_SERVING and
            calls fail with UNAVAILABLE; its exception ends the server.
        register: adds services, such as add_AllocatorServicer_to_server.
        listen: port 0 takes a free one.
        """
        self._load = load
        self._ready = threading.Event()
        # Safe to use in a signal handler, unlike an Event.
        self._end: SimpleQueue[BaseException | None] = SimpleQueue()
        self._gate = Gate(self._ready)
        self._server = grpc.server(ThreadPoolExecutor(CALLS + STREAMS), interceptors=[self._gate], options=_OPTIONS)
        self._health = health.HealthServicer()
        self._report(health_pb2.HealthCheckResponse.NOT_SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._watches = None if changes is None else Watches(self._gate.counted(costs), changes)
        service = RuleService(costs, evaluate, self._watches.serve if self._watches else None)
        add_RuleProviderServicer_to_server(service, self._server)
        if register is not None:
            register(self._server)
        self.address = self._bind(listen, tls)

    def _bind(self, listen: str, tls: Tls | None) -> str:
        host, _, port = listen.rpartition(":")
        # gRPC takes a larger one modulo 65536.
        if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
            raise ValueError(f"listen is {listen!r}: write HOST:PORT, such as 127.0.0.1:{PORT}, or :{PORT}")
        host = host or "[::]"
        if int(port) > 0:
            try:
                _check_free(host.strip("[]"), int(port))
            except OSError as error:
                raise OSError(f"cannot listen on {listen}: {error}") from error
        try:
            if tls is None:
                bound = self._server.add_insecure_port(f"{host}:{port}")
            else:
                bound = self._server.add_secure_port(f"{host}:{port}", TlsFiles(tls).credentials())
        except RuntimeError as error:
            raise OSError(f"cannot listen on {listen}: {error}") from error
        return f"{host}:{bound}"

    def start(self) -> None:
        """Starts to serve, and to load."""
        self._server.start()
        threading.Thread(target=self._prepare, name="load", daemon=True).start()

    def _prepare(self) -> None:
        try:
            if self._load is not None:
                self._load()
        # Also sys.exit, which would end this thread alone.
        except BaseException as error:
            self._end.put(error)
            return
        self._ready.set()
        self._report(health_pb2.HealthCheckResponse.SERVING)

    def _report(self, status: int) -> None:
        for service in ("", "ruleprovider.RuleProvider"):
            self._health.set(service, status)

    def wait(self) -> None:
        """Returns after end, or raises the exception of load."""
        failure = self._end.get()
        if failure is not None:
            raise failure

    def end(self) -> None:
        """Lets wait return; signal handlers may call it."""
        self._end.put(None)

    def stop(self) -> None:
        """Finishes the calls in progress, and ends the streams."""
        self._health.enter_graceful_shutdown()
        if self._watches is not None:
            self._watches.stop()
        self._server.stop(GRACE_SECONDS).wait()
        if self.is_busy():
            _log.warning("calls in progress are cut off after %s s", GRACE_SECONDS)

    def is_busy(self) -> bool:
        """Whether a function has not returned yet: after stop, its thread keeps Python alive."""
        return self._gate.is_busy()

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def serve(
    costs: CostFunction,
    *,
    evaluate: EvaluateFunction | None = None,
    changes: Changes | None = None,
    load: Callable[[], None] | None = None,
    register: Callable[[grpc.Server], None] | None = None,
    listen: str = f":{PORT}",
    tls: Tls | None = None,
) -> None:
    """Serves until SIGTERM or Ctrl-C, and finishes the calls in progress; prints the address. The
    arguments are those of Server. To be called in the main thread."""
    _run(Server(costs, evaluate=evaluate, changes=changes, load=load, register=register, listen=listen, tls=tls))


def _run(server: Server) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.end())
    with server:
        print("listening on", server.address, flush=True)
        server.wait()


def main(
    costs: CostFunction,
    *,
    evaluate: EvaluateFunction | None = None,
    changes: Changes | None = None,
    load: Callable[[], None] | None = None,
    register: Callable[[grpc.Server], None] | None = None,
) -> None:
    """Serves with the address and the TLS files of the command line, or of the variables LISTEN,
    TLS_CERT, TLS_KEY and TLS_CLIENT_CA."""
    parser = argparse.ArgumentParser(description="A rule provider of Tautline.")
    arguments = parse(parser, os.environ)
    try:
        server = Server(
            costs,
            evaluate=evaluate,
            changes=changes,
            load=load,
            register=register,
            listen=arguments.listen,
            tls=tls_of(arguments),
        )
        _run(server)
    except (OSError, ValueError) as error:
        parser.exit(1, f"error: {error}\n")
    if server.is_busy():
        # Python would wait for a function that does not return.
        logging.shutdown()
        os._exit(0)


def parse(
    parser: argparse.ArgumentParser, variables: Mapping[str, str], arguments: list[str] | None = None
) -> argparse.Namespace:
    """Parses the flags, whose defaults are variables."""
    for name, default, help in (
        ("listen", f":{PORT}", "address; port 0 takes a free one"),
        ("tls-cert", "", "PEM file of the server's certificate"),
        ("tls-key", "", "PEM file of the certificate's key"),
        ("tls-client-ca", "", "PEM file of the CA that clients must have a certificate of"),
    ):
        variable = name.replace("-", "_").upper()
        default = variables.get(variable) or default
        shown = " (default: %(default)s)" if default else ""
        parser.add_argument(f"--{name}", default=default, help=f"{help}, also ${variable}{shown}")
    return parser.parse_args(arguments)


def tls_of(arguments: argparse.Namespace) -> Tls | None:
    """Raises ValueError if a flag is missing."""
    cert, key, client_ca = arguments.tls_cert, arguments.tls_key, arguments.tls_client_ca
    if not (cert or key or client_ca):
        return None
    for flag, path in (("--tls-cert", cert), ("--tls-key", key)):
        if not path:
            raise ValueError(f"{flag} is empty: name the PEM file")
    return Tls(cert, key, client_ca)
