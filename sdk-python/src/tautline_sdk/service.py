"""The gRPC service, and the gate in front of every service."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc

from .answers import (
    BadRule,
    Compliance,
    CostFunction,
    CostRequest,
    EvaluateFunction,
    EvaluateRequest,
    Evaluation,
    NotReady,
    cost_response,
    evaluate_response,
)
from .proto.ruleprovider_pb2 import CostUpdate, CostWatch, EndpointCostResponse, EvaluateResponse
from .proto.ruleprovider_pb2_grpc import RuleProviderServicer

_log = logging.getLogger("tautline_sdk")

_T = TypeVar("_T")

# Metadata has a bound of 16 KiB, and a longer text breaks the connection; a character is up to
# 12 bytes there.
_MAX_TEXT = 1000

WatchFunction = Callable[[Iterator[CostWatch], grpc.ServicerContext], Iterator[CostUpdate]]


def status_of(error: BaseException) -> tuple[grpc.StatusCode, str]:
    """Returns the status of a call whose function raised the error; INTERNAL if it was not meant to."""
    if isinstance(error, BadRule):
        code, text = grpc.StatusCode.INVALID_ARGUMENT, str(error)
    elif isinstance(error, NotReady):
        code, text = grpc.StatusCode.FAILED_PRECONDITION, f"not ready: {error}"
    else:
        code, text = grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
    # Names of files may have surrogates.
    text = text.encode(errors="replace").decode()
    return code, text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + " ..."


class RuleService(RuleProviderServicer):
    def __init__(
        self, costs: CostFunction, evaluate: EvaluateFunction | None, watch: WatchFunction | None = None
    ) -> None:
        self._costs = costs
        self._evaluate = evaluate
        self._watch = watch

    def EndpointCost(self, request: CostRequest, context: grpc.ServicerContext) -> EndpointCostResponse:
        return cost_response(self._costs(request), request)

    def Evaluate(self, request: EvaluateRequest, context: grpc.ServicerContext) -> EvaluateResponse:
        if self._evaluate is None:
            evaluation = Evaluation(Compliance.COMPLIANT, "checked only when pods are placed")
        else:
            evaluation = self._evaluate(request)
        return evaluate_response(evaluation)

    def WatchCosts(self, requests: Iterator[CostWatch], context: grpc.ServicerContext) -> Iterator[CostUpdate]:
        if self._watch is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "the provider does not say when costs change")
        return self._watch(requests, context)


class Gate(grpc.ServerInterceptor):
    """Refuses calls until the provider is loaded, and turns exceptions into statuses."""

    def __init__(self, ready: threading.Event) -> None:
        self._ready = ready
        self._calls = 0
        self._lock = threading.Lock()

    def is_busy(self) -> bool:
        """Whether a function has not returned yet."""
        with self._lock:
            return self._calls > 0

    def counted(self, function: Callable[..., _T]) -> Callable[..., _T]:
        """Returns the function, which makes the provider busy until it returns."""

        def call(*arguments: Any) -> _T:
            self._count(1)
            try:
                return function(*arguments)
            finally:
                self._count(-1)

        return call

    def _count(self, change: int) -> None:
        with self._lock:
            self._calls += change

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = continuation(handler_call_details)
        # /grpc. is health.
        if handler is None or handler_call_details.method.startswith("/grpc."):
            return handler
        if handler.stream_stream is not None:
            stream = handler.stream_stream

            def open(requests: Any, context: grpc.ServicerContext) -> Any:
                self._refuse_early(context)
                return stream(requests, context)

            return grpc.stream_stream_rpc_method_handler(
                open,
                request_deserializer=handler.request_deserializer,
                response_serializer=handler.response_serializer,
            )
        if handler.unary_unary is None:
            return handler
        handle = self.counted(handler.unary_unary)

        def call(request: Any, context: grpc.ServicerContext) -> Any:
            self._refuse_early(context)
            try:
                return handle(request, context)
            # Also sys.exit and a cancelled task, which gRPC would never answer.
            except BaseException as error:
                code, text = status_of(error)
                if code is grpc.StatusCode.INTERNAL:
                    # The function called context.abort.
                    if context.code() is not None:  # type: ignore[attr-defined]
                        raise
                    _log.exception("%s failed", handler_call_details.method)
            context.abort(code, text)

        return grpc.unary_unary_rpc_method_handler(
            call,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _refuse_early(self, context: grpc.ServicerContext) -> None:
        if not self._ready.is_set():
            context.abort(grpc.StatusCode.UNAVAILABLE, "not ready: loading")
