"""A provider of the rule "spread": a node costs as many as it has of the pod's peers, so pods go
where no peer is."""

import tautline_sdk


def spread(request):
    peers = tautline_sdk.peer_counts(request)
    return {node: peers[node] for node in request.eligibleNodes}


if __name__ == "__main__":
    tautline_sdk.main(spread)
