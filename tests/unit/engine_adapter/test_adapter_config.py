"""The engine's address says what the engine speaks, and which other options it takes."""

from typing import Any

import pytest

from engine_adapter.config import AdapterConfig
from serving.config import ConfigError
from tests.services import SECRET


def config(**options: Any) -> AdapterConfig:
    return AdapterConfig(secret=SECRET, **options)


@pytest.mark.parametrize(
    ("engine", "scheme"),
    [("pod:8000", "http"), ("http://pod:8000", "http"), ("grpc://pod:8000", "grpc")],
)
def test_the_scheme_and_the_address_of_an_engine_stand_in_its_url(engine: str, scheme: str) -> None:
    found = config(engine=engine)
    assert (found.scheme, found.engine_address, found.engine_api_key) == (scheme, "pod:8000", "")


def test_the_key_of_an_engine_stands_in_its_url() -> None:
    found = config(engine="http://:a%20key@pod:8000")
    assert (found.engine_address, found.engine_api_key) == ("pod:8000", "a key")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "ftp://pod:8000"}, "engine: expected one of http, grpc before ://, got 'ftp://pod:8000'"),
        ({"engine": "grpc://pod"}, "engine: expected host:port"),
        ({"engine": "grpc://a:1,b:2"}, "engine: expected one host:port, got 'grpc://a:1,b:2'"),
        ({"model": "/m"}, "model: is only for an engine that speaks gRPC"),
        ({"engine": "grpc://:k@pod:1"}, "engine: a key is not sent over gRPC"),
        ({"engine": "grpc://pod:1", "kv_events": "tcp://pod:2"}, "kv_events: must not be given, since gRPC"),
        ({"kv_events": ",tcp://pod:2"}, "kv_events: the first address must not be empty"),
    ],
)
def test_options_that_do_not_fit_the_engine_are_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**options)
