"""Serves a rule provider of Tautline, which places pods of Kubernetes by constraints.

A provider answers what each node would cost for a pod:

    import tautline_sdk

    def spread(request):
        peers = tautline_sdk.peer_counts(request)
        return {node: peers[node] for node in request.eligibleNodes}

    if __name__ == "__main__":
        tautline_sdk.main(spread)

The label constraint.ciena.com/constraint-spread: enabled on a Service binds the rule "spread" to
the provider.
"""

from .answers import (
    BadRule,
    Compliance,
    Cost,
    CostFunction,
    CostRequest,
    Costs,
    EvaluateFunction,
    EvaluateRequest,
    Evaluation,
    NotReady,
    Unusable,
    peer_counts,
)
from .server import Server, main, serve
from .tls import Tls
from .watch import Changes

__all__ = [
    "BadRule",
    "Changes",
    "Compliance",
    "Cost",
    "CostFunction",
    "CostRequest",
    "Costs",
    "EvaluateFunction",
    "EvaluateRequest",
    "Evaluation",
    "NotReady",
    "Server",
    "Tls",
    "Unusable",
    "main",
    "peer_counts",
    "serve",
]
