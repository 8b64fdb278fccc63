"""A provider of the rule "spread": a node costs as many as it has of the pod's peers, so pods go
where no peer is."""

import tautline_sdk


def spread(request):
    peers = tautline_sdk.peer_counts(request)
    return {node: peers[node] for node in request.eligibleNodes}


if __name__ == "__main__":
    # Costs follow from the request alone: they can be sent before kube-scheduler asks, and never change.
    tautline_sdk.main(spread, changes=tautline_sdk.Changes())
