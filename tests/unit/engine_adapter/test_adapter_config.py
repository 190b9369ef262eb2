"""The engine's address, and which other options it takes."""

from typing import Any

import pytest

from engine_adapter.config import AdapterConfig
from serving.config import ConfigError
from tests.services import SECRET


def config(**options: Any) -> AdapterConfig:
    return AdapterConfig(secret=SECRET, **options)


@pytest.mark.parametrize("engine", ["pod:8000", "http://pod:8000"])
def test_the_address_of_an_engine_stands_in_its_url(engine: str) -> None:
    found = config(engine=engine)
    assert (found.engine_address, found.engine_api_key) == ("pod:8000", "")


def test_the_key_of_an_engine_stands_in_its_url() -> None:
    found = config(engine="http://:a%20key@pod:8000")
    assert (found.engine_address, found.engine_api_key) == ("pod:8000", "a key")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "grpc://pod:8000"}, "engine: expected http:// or nothing before it, got 'grpc://pod:8000'"),
        ({"engine": "http://pod"}, "engine: expected host:port"),
        ({"engine": "http://a:1,b:2"}, "engine: expected one host:port, got 'http://a:1,b:2'"),
        ({"kv_events": ",tcp://pod:2"}, "kv_events: the first address must not be empty"),
    ],
)
def test_options_that_do_not_fit_the_engine_are_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**options)
