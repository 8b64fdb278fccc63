"""Runs the provider of examples/provider-carbon as its README says."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import grpc

from tautline_sdk.proto.ruleprovider_pb2 import EndpointCostRequest, PolicyRule
from tautline_sdk.proto.ruleprovider_pb2_grpc import RuleProviderStub

from .test_server import DEADLINE, SERVING, await_health

FOLDER = Path(__file__).parents[2] / "examples/provider-carbon"


@unittest.skipUnless(FOLDER.exists(), "not in Tautline's repository")
class CarbonTest(unittest.TestCase):
    def setUp(self) -> None:
        nodes = {**os.environ, "NODES": f"file:{FOLDER}/tests/nodes.json"}
        command = [sys.executable, f"{FOLDER}/provider.py", "--listen", "127.0.0.1:0"]
        provider = subprocess.Popen(command, env=nodes, stdout=subprocess.PIPE, text=True)
        self.addCleanup(provider.communicate, timeout=DEADLINE)
        self.addCleanup(provider.terminate)
        assert provider.stdout is not None
        self.address = provider.stdout.readline().removeprefix("listening on ").strip()
        with grpc.insecure_channel(self.address) as channel:
            await_health(channel, SERVING)

    def test_costs_are_those_of_the_table(self) -> None:
        def ask(limit: str) -> list[tuple[int, str]]:
            rule, nodes = PolicyRule(name="carbon", limit=limit), ["paris-1", "frankfurt-1", "unknown"]
            request = EndpointCostRequest(rule=rule, eligibleNodes=nodes)
            lines = stub.EndpointCost(request, timeout=DEADLINE).nodeAndCost
            return [(line.cost, line.reason) for line in lines]

        with grpc.insecure_channel(self.address) as channel:
            stub = RuleProviderStub(channel)
            self.assertEqual(ask(""), [(16, ""), (276, ""), (-1, "NoFigure")])
            self.assertEqual(ask("200"), [(16, ""), (-1, "OverLimit"), (-1, "NoFigure")])
            with self.assertRaisesRegex(grpc.RpcError, "limit is 'few'; write grams"):
                ask("few")

    @unittest.skipUnless(os.environ.get("TAUTLINE"), "$TAUTLINE is not set; name the program to run tautline plan")
    def test_plan_is_that_of_the_readme(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(FOLDER / "tests", f"{folder}/tests")
            port = self.address.rpartition(":")[2]
            manifests = (FOLDER / "batch.yaml").read_text().replace("5309", port)
            Path(folder, "batch.yaml").write_text(manifests)
            command = [os.environ["TAUTLINE"], "plan", "-f", folder, "--strict"]
            plan = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
        expected = (FOLDER / "README.md").read_text().split("```text\n")[1].split("```")[0]
        self.assertIn(expected, plan.stdout, plan.stderr)
        self.assertEqual(plan.returncode, 0, plan.stderr)
