"""A real Prometheus scrapes real services: it understands what they say, and every query of dashboards and alerts."""

import asyncio
import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead import Client
from tests.ports import free_ports
from tests.services import Stack, eventually
from tests.system.deploy.test_monitoring import MONITORING, expressions

pytestmark = pytest.mark.e2e


class Prometheus:
    """One that scrapes `ports` every second, with our alert rules."""

    def __init__(self, program: Path, folder: Path, ports: dict[str, int]) -> None:
        [port] = free_ports(1)
        self._url = f"http://127.0.0.1:{port}/api/v1/"
        jobs = [
            {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": {"pod": name}}]}
            for name, port in ports.items()
        ]
        settings = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": jobs,
            "rule_files": [str(MONITORING / "alerts.yaml")],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        options = {
            "config.file": folder / "prometheus.yml",
            "storage.tsdb.path": folder / "data",
            "web.listen-address": self._url.split("/")[2],
            "enable-feature": "exemplar-storage",
        }
        command = [str(program), *(f"--{name}={value}" for name, value in options.items())]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def ask(self, path: str, **parameters: object) -> Any:
        """The data of one answer of its API; None while it does not listen yet."""
        try:
            with urllib.request.urlopen(f"{self._url}{path}?{urllib.parse.urlencode(parameters)}", timeout=60) as reply:
                answer = json.load(reply)
        except OSError:  # it does not listen yet
            return None
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[Any]:
        """What the expression gives now."""
        answer = self.ask("query", query=expression)
        return list(answer["result"]) if answer else []


async def ask(address: str) -> None:
    async with Client(address, user="ann") as client:
        for _ in range(5):
            await client.generate("the same prompt again " * 4, max_tokens=8, ignore_eos=True)


@pytest.fixture(scope="module")
def scraping(prometheus: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Started before the calls, so that rates see them."""
    folder = tmp_path_factory.mktemp("prometheus")
    stack = Stack(tmp_path_factory.mktemp("stack"), metrics="127.0.0.1:0")
    try:
        stack.worker("w0", model="tiny", engine="fake:0.005")
        services = {"gateway": stack.gateway(), "scheduler": stack.scheduler, "worker": stack.workers["w0"]}
        ports = {name: process.logged("listening")[0]["metrics_port"] for name, process in services.items()}
        running = Prometheus(prometheus / "prometheus", folder, ports)
        try:
            asyncio.run(ask(services["gateway"].address))
            eventually(lambda: running.query("sum(fairlead_calls_total)"), "the first calls are scraped")
            asyncio.run(ask(services["gateway"].address))
            eventually(lambda: running.query("sum(fairlead_calls_total) == 10"), "all calls are scraped")
            yield running
        finally:
            running.process.kill()
            running.process.wait()
    finally:
        stack.close()


def test_every_service_is_scraped_without_error(scraping: Prometheus) -> None:
    """However busy the machine is: an answer that takes longer than a second is an error of that one scrape."""

    def errors() -> list[str]:
        return [target["lastError"] for target in scraping.ask("targets")["activeTargets"]]

    eventually(lambda: len(scraping.query("up == 1")) == 3 and errors() == [""] * 3, "every service is up")


@pytest.mark.parametrize("where", sorted(expressions()))
def test_a_query_can_be_answered(scraping: Prometheus, where: str) -> None:
    assert isinstance(scraping.query(expressions()[where]), list)


@pytest.mark.parametrize(
    "where",
    [
        "fairlead-fairness: Service by tier A",
        "fairlead-fairness: Service gap over its bound A",
        "fairlead-fairness: Balances against their range A",
        "fairlead-latency: Time to first token C",
        "fairlead-latency: Mean time by phase A",
        "fairlead-cache: Hit rate A",
        "fairlead-throttling: Calls by outcome A",
        "fairlead-capacity: Workers A",
        "fairlead-capacity: KV cache in use A",
    ],
)
def test_a_panel_shows_something(scraping: Prometheus, where: str) -> None:
    assert eventually(lambda: scraping.query(expressions()[where]), where)


def test_an_exemplar_leads_to_a_trace(scraping: Prometheus) -> None:
    found = scraping.ask(
        "query_exemplars", query="gen_ai_server_time_to_first_token_seconds_bucket", start=0, end="9999999999"
    )
    assert len(found[0]["exemplars"][0]["labels"]["trace_id"]) == 32


def test_nothing_is_alarming_about_a_healthy_cluster(scraping: Prometheus) -> None:
    assert [alert for alert in scraping.ask("alerts")["alerts"] if alert["state"] == "firing"] == []
