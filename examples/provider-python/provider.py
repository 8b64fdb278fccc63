"""A provider of the rule "spread": a node costs as many as it has of the pod's
peers, so pods go where no peer is."""

import argparse
import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from grpc_tools import protoc

# Generated at each start, so there is no generated code to keep in step with the proto,
# of which a copy lies here.
PROTO = Path(__file__).resolve().parent
with tempfile.TemporaryDirectory() as out:
    if protoc.main(["", f"-I{PROTO}", f"--python_out={out}", f"--grpc_python_out={out}", "ruleprovider.proto"]):
        sys.exit("ruleprovider.proto does not compile")
    sys.path.insert(0, out)
    import ruleprovider_pb2 as pb
    import ruleprovider_pb2_grpc as rpc

    sys.path.remove(out)


class Spread(rpc.RuleProviderServicer):
    def EndpointCost(self, request, context):
        # The caller may not know peers; peerNodes it always knows.
        on = Counter([peer.node for peer in request.peers] or request.peerNodes)
        # All eligible nodes: a node not named cannot be used.
        return pb.EndpointCostResponse(
            nodeAndCost=[pb.NodeCost(node=node, cost=on[node]) for node in request.eligibleNodes]
        )

    def Evaluate(self, request, context):
        return pb.EvaluateResponse(
            compliance=pb.EvaluateResponse.Compliant,
            reason="spread is a preference, any placement keeps to it",
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", default=os.environ.get("LISTEN", ":5309"), help="address, also $LISTEN; port 0 takes a free one")
    host, _, port = parser.parse_args().listen.rpartition(":")
    host = host or "[::]"
    # Without SO_REUSEPORT, a second provider on the same port fails instead of taking half of the calls.
    server = grpc.server(ThreadPoolExecutor(), options=[("grpc.so_reuseport", 0)])
    rpc.add_RuleProviderServicer_to_server(Spread(), server)
    port = server.add_insecure_port(f"{host}:{port}")
    server.start()
    print(f"listening on {host}:{port}", flush=True)
    server.wait_for_termination()
