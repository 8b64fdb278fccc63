"""The gRPC service, and the gate in front of every service."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

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
from .proto.ruleprovider_pb2 import EndpointCostResponse, EvaluateResponse
from .proto.ruleprovider_pb2_grpc import RuleProviderServicer

_log = logging.getLogger("tautline_sdk")

# Metadata has a bound of 16 KiB, and a longer text breaks the connection; a character is up to
# 12 bytes there.
_MAX_TEXT = 1000


class RuleService(RuleProviderServicer):
    def __init__(self, costs: CostFunction, evaluate: EvaluateFunction | None) -> None:
        self._costs = costs
        self._evaluate = evaluate

    def EndpointCost(self, request: CostRequest, context: grpc.ServicerContext) -> EndpointCostResponse:
        return cost_response(self._costs(request), request)

    def Evaluate(self, request: EvaluateRequest, context: grpc.ServicerContext) -> EvaluateResponse:
        if self._evaluate is None:
            evaluation = Evaluation(Compliance.COMPLIANT, "checked only when pods are placed")
        else:
            evaluation = self._evaluate(request)
        return evaluate_response(evaluation)


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
        if handler is None or handler.unary_unary is None or handler_call_details.method.startswith("/grpc."):
            return handler
        handle = handler.unary_unary

        def call(request: Any, context: grpc.ServicerContext) -> Any:
            if not self._ready.is_set():
                context.abort(grpc.StatusCode.UNAVAILABLE, "not ready: loading")
            self._count(1)
            try:
                return handle(request, context)
            except BadRule as error:
                code, text = grpc.StatusCode.INVALID_ARGUMENT, str(error)
            except NotReady as error:
                code, text = grpc.StatusCode.FAILED_PRECONDITION, f"not ready: {error}"
            # Also sys.exit and a cancelled task, which gRPC would never answer.
            except BaseException as error:
                # The function called context.abort.
                if context.code() is not None:  # type: ignore[attr-defined]
                    raise
                _log.exception("%s failed", handler_call_details.method)
                code, text = grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
            finally:
                self._count(-1)
            context.abort(code, text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + " ...")

        return grpc.unary_unary_rpc_method_handler(
            call,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )
