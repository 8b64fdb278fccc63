"""WatchCosts sends the costs of open questions as they change, so that nobody waits for an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from time import monotonic

import grpc

from .answers import CostFunction
from .proto.ruleprovider_pb2 import CostUpdate, CostWatch
from .questions import Stream

STREAMS = 4
"""How many streams are served at once; each holds a thread."""

_NAMES = 10_000
"""How many names the log of changes keeps."""
_MESSAGES = 8
"""How many messages of a stream may wait."""
_UPDATE_BYTES = 1 << 20
"""An update is sent once it has this size: callers take messages of up to 4 MiB."""
_TICK_SECONDS = 1.0


class Changes:
    """Tells callers that costs have changed, so that they have the new ones before they ask.

    Call a method after the data of the cost function has changed; it returns at once. Any thread may
    call. The cost function may look neither at the pod's name nor at its uid: they are empty in the
    questions of callers that wait for changes.
    """

    def __init__(self) -> None:
        # Streams wait for it, also for their messages.
        self._news = threading.Condition()
        self._last = 0
        self._last_all = 0
        self._last_of: dict[str, int] = {}

    def changed(self, *nodes: str) -> None:
        """Says that the costs of these nodes may have changed."""
        with self._news:
            self._last += 1
            self._last_of.update(dict.fromkeys(nodes, self._last))
            if len(self._last_of) > _NAMES:
                self._forget()
            self._news.notify_all()

    def changed_all(self) -> None:
        """Says that the costs of all nodes may have changed."""
        with self._news:
            self._last += 1
            self._forget()
            self._news.notify_all()

    def _forget(self) -> None:
        self._last_all = self._last
        self._last_of.clear()

    def _since(self, number: int) -> tuple[int, set[str] | None]:
        """Returns the number of the last change, and the nodes of those after number; None: all nodes."""
        with self._news:
            if self._last_all > number:
                return self._last, None
            return self._last, {node for node, last in self._last_of.items() if last > number}


class Watches:
    """Serves the streams of a server."""

    def __init__(self, costs: CostFunction, changes: Changes) -> None:
        self._costs = costs
        self._changes = changes
        self._free = threading.Semaphore(STREAMS)
        self._is_stopping = False

    def stop(self) -> None:
        """Ends the streams."""
        with self._changes._news:
            self._is_stopping = True
            self._changes._news.notify_all()

    def serve(self, requests: Iterator[CostWatch], context: grpc.ServicerContext) -> Iterator[CostUpdate]:
        """Serves one stream, in the calling thread."""
        if not self._free.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"too many streams of WatchCosts: {STREAMS}")
        inbox = _Inbox(requests, self._changes._news)
        try:
            if context.add_callback(inbox.end):
                inbox.start()
                yield from self._updates(inbox, context)
            if self._is_stopping:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the provider stops")
        finally:
            inbox.end()
            self._free.release()

    def _updates(self, inbox: _Inbox, context: grpc.ServicerContext) -> Iterator[CostUpdate]:
        changes = self._changes
        stream = Stream(self._costs)
        # Costs that are computed from now on contain the changes up to here.
        number, _ = changes._since(0)
        due = monotonic() + _TICK_SECONDS

        def is_over() -> bool:
            return inbox.has_ended or self._is_stopping

        while not is_over():
            with changes._news:
                changes._news.wait_for(
                    lambda: inbox.has_news() or changes._last != number or is_over(), max(0.0, due - monotonic())
                )
                messages, was_closed = inbox.take(), inbox.is_closed
            for message in messages:
                stream.apply(message, context)
            # Before the costs are computed: they may lack what changes meanwhile.
            number, changed = changes._since(number)
            update, size = CostUpdate(), 0
            for part in stream.parts(changed):
                if is_over():
                    return
                update.MergeFrom(part)
                size += part.ByteSize()
                if size >= _UPDATE_BYTES or monotonic() >= due:
                    yield update
                    update, size, due = CostUpdate(), 0, monotonic() + _TICK_SECONDS
            if size > 0 or messages or monotonic() >= due:
                update.through = stream.through
                yield update
                due = monotonic() + _TICK_SECONDS
            if was_closed:
                return


class _Inbox:
    """The messages of a stream that have arrived; a thread reads them. Its attributes belong to who
    holds news."""

    def __init__(self, requests: Iterator[CostWatch], news: threading.Condition) -> None:
        self._requests = requests
        self._news = news
        self._messages: list[CostWatch] = []
        self.is_closed = False
        """The caller sends no more."""
        self.has_ended = False
        """Nobody wants messages any more."""

    def start(self) -> None:
        threading.Thread(target=self._read, name="watch", daemon=True).start()

    def _read(self) -> None:
        try:
            for message in self._requests:
                with self._news:
                    self._news.wait_for(lambda: len(self._messages) < _MESSAGES or self.has_ended)
                    if self.has_ended:
                        return
                    self._messages.append(message)
                    self._news.notify_all()
        except grpc.RpcError:
            # The call was cancelled.
            pass
        with self._news:
            self.is_closed = True
            self._news.notify_all()

    def has_news(self) -> bool:
        return self.is_closed or bool(self._messages)

    def take(self) -> list[CostWatch]:
        messages, self._messages = self._messages, []
        self._news.notify_all()
        return messages

    def end(self) -> None:
        with self._news:
            self.has_ended = True
            self._news.notify_all()
