import os
import tempfile
import unittest
from pathlib import Path

import grpc
import trustme

from tautline_sdk import CostRequest, Server, Tls
from tautline_sdk.proto.ruleprovider_pb2_grpc import RuleProviderStub

DEADLINE = 30


def costs(request: CostRequest) -> dict[str, int]:
    return {}


class TlsTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.ca = trustme.CA()
        self.ca.cert_pem.write_to_path(str(self.folder / "ca"))
        self.changes = 0

    def write(self, name: str, data: bytes) -> None:
        """Gives the file a time of its own: clocks of file systems are coarse."""
        path = self.folder / name
        path.write_bytes(data)
        self.changes += 1
        os.utime(path, (self.changes, self.changes))

    def write_pair(self, pair: trustme.LeafCert) -> None:
        self.write("crt", pair.cert_chain_pems[0].bytes())
        self.write("key", pair.private_key_pem.bytes())

    def call(self, address: str, root: trustme.CA, known: bool = True) -> None:
        """Calls over a new connection."""
        client = self.ca.issue_cert("extender")
        credentials = grpc.ssl_channel_credentials(
            root.cert_pem.bytes(),
            client.private_key_pem.bytes() if known else None,
            client.cert_chain_pems[0].bytes() if known else None,
        )
        # Without the option the channels of a process share connections.
        options = [("grpc.ssl_target_name_override", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.secure_channel(address, credentials, options) as channel:
            RuleProviderStub(channel).EndpointCost(CostRequest(), timeout=DEADLINE, wait_for_ready=False)

    def test_mutual_tls_with_reload(self) -> None:
        self.write_pair(self.ca.issue_cert("localhost"))
        at = {name: str(self.folder / name) for name in ("crt", "key", "ca")}
        tls = Tls(at["crt"], at["key"], at["ca"])
        with Server(costs, listen="127.0.0.1:0", tls=tls) as server:
            self.call(server.address, self.ca)
            with self.assertRaises(grpc.RpcError):
                self.call(server.address, self.ca, known=False)

            # A broken pair leaves the first one in use.
            self.write("key", b"half")
            with self.assertLogs("tautline_sdk", "WARNING"):
                self.call(server.address, self.ca)

            other = trustme.CA()
            self.write_pair(other.issue_cert("localhost"))
            self.call(server.address, other)
            with self.assertRaises(grpc.RpcError):
                self.call(server.address, self.ca)
