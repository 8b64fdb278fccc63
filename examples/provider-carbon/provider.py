"""A provider of the rule "carbon": a node costs the grams of CO2 of a kilowatt-hour in its region, by the table
carbon.csv. The rule's limit is the most of them."""

import csv
import json
import os
import ssl
import threading
import time
import urllib.request
from pathlib import Path

from tautline_sdk import BadRule, Changes, Cost, Unusable, main

# The nodes of the pod's own cluster; file:PATH for those that `kubectl get nodes -o json` printed.
NODES = os.environ.get("NODES", "https://kubernetes.default.svc/api/v1/nodes")
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REFRESH_SECONDS = 30

with open(Path(__file__).with_name("carbon.csv"), newline="", encoding="utf-8") as table:
    GRAMS = {row["region"]: round(float(row["grams"])) for row in csv.DictReader(table)}
regions, changes = {}, Changes()


def read_nodes():
    request, context = urllib.request.Request(NODES), None
    if NODES.startswith("https:"):
        request.add_header("Authorization", "Bearer " + (ACCOUNT / "token").read_text())
        context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        nodes = [node["metadata"] for node in json.load(answer)["items"]]
    regions.update({node["name"]: node.get("labels", {}).get("topology.kubernetes.io/region", "") for node in nodes})


def refresh():
    while time.sleep(REFRESH_SECONDS) is None:
        before = dict(regions)
        try:
            read_nodes()
        except (OSError, ValueError) as error:
            print("the known nodes count on:", error, flush=True)
        if regions != before:
            changes.changed_all()


def load():
    read_nodes()
    threading.Thread(target=refresh, daemon=True).start()


def cost(region, limit):
    grams = GRAMS.get(region)
    if grams is None:
        return Unusable("NoFigure", f"region {region!r} is not in carbon.csv")
    if limit and grams > int(limit):
        return Unusable("OverLimit", f"{grams} g/kWh in {region} > {limit}")
    return Cost(grams, f"{grams} g/kWh in {region}")


def carbon(request):
    limit = request.rule.limit
    if limit and not limit.isdecimal():
        raise BadRule(f"limit is {limit!r}; write grams of CO2 for a kilowatt-hour, such as 100")
    return {node: cost(regions.get(node, ""), limit) for node in request.eligibleNodes}


if __name__ == "__main__":
    main(carbon, changes=changes, load=load)
