"""Names of models and LoRA adapters that nobody serves are looked up, and neither kept, opened nor shown at length."""

import asyncio
from collections import Counter
from urllib.parse import quote

import pytest

from fairlead import Client, Retries
from fairlead.errors import FairleadError
from tests.services import Process, Stack
from tests.system.attacks.conftest import KEY, gateway_of
from tests.system.attacks.honest import served
from tests.system.attacks.report import Memory, Report
from tests.unit.gateway.http.http_client import CHAT, HELLO, MESSAGES, MODELS, RESPONSES, TOKENIZE, HttpClient

ABSURD = (
    "../../../../etc/passwd",
    "/etc/passwd",
    "file:///etc/passwd",
    "lora=../adapter",
    "a,b=c",
    "tiny\x00",
    "tiny\n{}",
    "\u202etiny",
    " tiny",
    "TINY",
    "t\u0456ny",  # a letter of another script
    "tiny\u200b",
    "ti\u00adny",
    "\uff54iny",
    "tiny/../tiny",
    "honest/tiny",
    "*",
    "m" * 1_000_000,
    "../" * 300_000,
    "\U0001f30a" * 100_000,
)
MOST_SHOWN = 2_000  # characters of an error or a log line


async def refused(address: str, names: tuple[str, ...]) -> list[FairleadError]:
    """The errors of calls of models with these names, one after the other."""
    errors: list[FairleadError] = []
    async with Client(address, api_key=KEY, retries=Retries(attempts=0)) as client:
        for name in names:
            try:
                await client.generate("hello", model=name, max_tokens=1)
            except FairleadError as error:
                errors.append(error)
    return errors


@pytest.fixture(scope="module")
def http(shared: Stack, tmp_path_factory: pytest.TempPathFactory) -> HttpClient:
    gateway = gateway_of(shared, tmp_path_factory.mktemp("gateway"), http_listen="127.0.0.1:0")
    return HttpClient(gateway.wait_for("listening")["http_port"])


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, TOKENIZE])
def test_models_that_nobody_serves_over_http(http: HttpClient, path: str) -> None:
    key = {"authorization": f"Bearer {KEY}"}
    body = {"messages": HELLO, "max_tokens": 1} if path != RESPONSES else {"input": "hello"}
    for name in ABSURD:
        answer = http.post(path, {**body, "model": name}, **key)
        assert answer.status == 404, answer.body[:MOST_SHOWN]
        assert len(answer.body) < 3 * MOST_SHOWN
    assert http.post(path, body, **key).status == 200


def test_models_that_nobody_serves_looked_up(http: HttpClient) -> None:
    for name in ABSURD:
        path = quote(name[:1000], safe="")
        answer = http.get(f"{MODELS}/{path}", authorization=f"Bearer {KEY}")
        assert answer.status == 404, answer.body[:MOST_SHOWN]


@pytest.mark.parametrize("count", [1_000])
def test_models_that_nobody_serves(shared_gateway: Process, report: Report, count: int) -> None:
    asyncio.run(refused(shared_gateway.address, ABSURD[:1]))
    memory = Memory(gateway=shared_gateway)
    errors = asyncio.run(refused(shared_gateway.address, (*ABSURD, *(f"lora-{number}" for number in range(count)))))
    report.add("names of models that nobody serves", Counter(type(error).__name__ for error in errors), memory)
    assert len(errors) == len(ABSURD) + count
    assert max(len(error.message) for error in errors) < MOST_SHOWN
    assert memory.grown < 100, str(memory)
    assert max(map(len, shared_gateway.log.splitlines())) < MOST_SHOWN
    assert asyncio.run(served(shared_gateway.address)) == 2
