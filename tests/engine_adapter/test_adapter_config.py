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
def test_the_scheme_and_the_address(engine: str, scheme: str) -> None:
    found = config(engine=engine)
    assert (found.scheme, found.engine_address) == (scheme, "pod:8000")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "ftp://pod:8000"}, "engine: expected one of http, grpc before ://, got 'ftp://pod:8000'"),
        ({"engine": "grpc://pod"}, "engine: expected host:port"),
        ({"engine": "grpc://a:1,b:2"}, "engine: expected one host:port, got 'grpc://a:1,b:2'"),
        ({"tokenizer": "/m"}, "tokenizer: is only for an engine that speaks gRPC"),
        ({"engine": "grpc://pod:1", "engine_api_key": "k"}, "engine_api_key: is not sent over gRPC"),
        ({"engine": "grpc://pod:1", "kv_events": "tcp://pod:2"}, "kv_events: must not be given, since gRPC"),
        ({"kv_replay": "tcp://pod:2"}, "kv_replay: must not be given without kv_events"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**options)
