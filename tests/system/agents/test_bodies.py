"""What the programs of docs/agents.md have sent (tests/system/agents/record.py) is answered."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.system.agents.cluster import KEY, OPEN_CALLS, Cluster
from tests.system.agents.coding_agents import AGENTS
from tests.system.agents.test_applications import COMMANDS
from tests.unit.gateway.http.http_client import HttpClient

pytestmark = pytest.mark.e2e

BODIES = Path(__file__).parent / "bodies"


@pytest.mark.parametrize("name", [*AGENTS, *COMMANDS])
def test_requests_recorded_from_programs_are_answered(quick_cluster: Cluster, name: str) -> None:
    def status(record: dict[str, Any]) -> int:
        client = HttpClient(quick_cluster.port)
        return client.post(record["path"], record["body"], authorization=f"Bearer {KEY}").status

    records = json.loads((BODIES / f"{name}.json").read_text())
    assert len(records) <= OPEN_CALLS
    with ThreadPoolExecutor(OPEN_CALLS) as senders:
        assert [*senders.map(status, records)] == [200] * len(records)
