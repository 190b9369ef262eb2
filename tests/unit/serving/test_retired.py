"""Former options are accepted for one version: each sets what took its place, with a warning that names that."""

import dataclasses
from typing import Any

import pytest

from endpoint_picker.config import PickerConfig
from engine_adapter.config import AdapterConfig
from gateway.config import GatewayConfig
from global_scheduler.config import SchedulerConfig
from local_worker.config import WorkerConfig
from serving.config import ConfigError, load
from serving.environment import ServiceName, variable
from serving.flags import flag
from serving.retired import FOLDED, REMOVED_IN, folded
from throttler.config import ThrottlerConfig

SECRET = "sixteen letters!"
CONFIGS: dict[ServiceName, type[Any]] = {
    ServiceName.GATEWAY: GatewayConfig,
    ServiceName.SCHEDULER: SchedulerConfig,
    ServiceName.PICKER: PickerConfig,
    ServiceName.WORKER: WorkerConfig,
    ServiceName.ADAPTER: AdapterConfig,
    ServiceName.THROTTLER: ThrottlerConfig,
}
G, S, P, W, A, T = CONFIGS
# For each: the service, what is given by former names, and what says the same now.
SAME: list[tuple[ServiceName, dict[str, str], dict[str, str]]] = [
    (G, {"tls_certificate": "/c", "tls_key": "/k"}, {"tls": "/c,/k"}),
    (G, {"tls_key": "/k", "tls_certificate": "/c"}, {"tls": "/c,/k"}),
    *(
        (
            service,
            {"internal_key": "/k", "internal_authority": "/a", "internal_certificate": "/c"},
            {"internal_tls": "/c,/k,/a"},
        )
        for service in CONFIGS
    ),
    (G, {"redis": "redis://h:1", "redis_password": "p@ss"}, {"redis": "redis://:p%40ss@h:1"}),
    (T, {"redis": "redis://me:old@h:1/2", "redis_password": "p"}, {"redis": "redis://me:p@h:1/2"}),
    (S, {"redis": "unix:///r", "redis_password": "p"}, {"redis": "unix:///r?password=p"}),
    (
        P,
        {"redis": "rediss://h:1", "redis_password": "p", "redis_ca": "/a"},
        {"redis": "rediss://:p@h:1?ssl_ca_certs=%2Fa"},
    ),
    (G, {"redis_password": "p"}, {}),
    (G, {"redis_ca": "/a"}, {}),
    (
        G,
        {"http_hosts": "a,b", "http_origins": "https://c,http://d:1"},
        {"http_hosts": "a,b,https://c,http://d:1"},
    ),
    (G, {"http_origins": "https://c"}, {"http_hosts": "https://c"}),
    (G, {"user_per_minute": "5"}, {"throttle": "oit:5"}),
    (G, {"throttle": "rpm", "app_per_minute": "7"}, {"throttle": "rpm:,7"}),
    (T, {"app_per_minute": "7", "user_per_minute": "5"}, {"throttle": "oit:5,7"}),
    (
        T,
        {"overload_metrics": "http://h/m", "overload_threshold": "3", "overload_metric": "waiting"},
        {"overload_metrics": "http://h/m#waiting>=3"},
    ),
    (T, {"overload_metrics": "http://h/m", "overload_threshold": "3"}, {"overload_metrics": "http://h/m#>=3"}),
    (T, {"unknown_domain": "allow"}, {"domains": "fairlead,*"}),
    (T, {"unknown_domain": "refuse"}, {}),
    (P, {"inference_pool": "a/b"}, {"endpoints": "a/b"}),
    (P, {"inference_pool": "a/b", "kubernetes": "http://h:1/"}, {"endpoints": "http://h:1/a/b"}),
    (P, {"endpoint_requests": "9", "endpoint_kv_tokens": "8"}, {"max_running": "9", "kv_tokens": "8"}),
    (P, {"kv_events_port": "5557", "kv_replay_port": "5558"}, {"kv_events": "5557,5558"}),
    (A, {"kv_events": "tcp://h:1", "kv_replay": "tcp://h:2"}, {"kv_events": "tcp://h:1,tcp://h:2"}),
    (A, {"engine": "h:1", "engine_api_key": "a/b"}, {"engine": ":a%2Fb@h:1"}),
    (W, {"model": "a/b", "served_name": "mine"}, {"model": "mine=a/b"}),
    (W, {"memory_fraction": "0.9"}, {"kv_tokens": "30%,90%"}),
    (W, {"kv_tokens": "64", "memory_fraction": "0.9"}, {"kv_tokens": "64,90%"}),
    (W, {"engine": "fake", "fake_token_bytes": "4"}, {"engine": "fake:,4"}),
    (W, {"engine": "fake", "fake_step_seconds": "0.5"}, {"engine": "fake:0.5"}),
    (W, {"fake_step_seconds": "0.5"}, {}),
    (W, {"engine": "vllm", "vllm_runner": "v2"}, {"engine": "vllm:v2"}),
    (W, {"engine": "vllm", "vllm_runner": "v1"}, {"engine": "vllm"}),
    (W, {"batch_invariant": "true"}, {"engine": "transformers:batch-invariant"}),
    (W, {"batch_invariant": "false"}, {}),
]
CONSTANTS = [
    (service, field.name)
    for service, config in CONFIGS.items()
    for field in dataclasses.fields(config)
    if "retired" in field.metadata
]


def given(service: ServiceName, values: dict[str, str]) -> Any:
    settings = {"secret": SECRET, **({} if service != P else {"endpoints": "h:1"}), **values}
    if "inference_pool" in values:
        del settings["endpoints"]
    environ = {variable(service, name): value for name, value in settings.items()}
    return load(CONFIGS[service], service, [], environ, prog="test")


@pytest.mark.parametrize(("service", "former", "now"), SAME)
def test_a_former_option_sets_what_took_its_place_and_a_warning_names_that(
    service: ServiceName, former: dict[str, str], now: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert given(service, former) == given(service, now)
    names = [name for name in former if name in FOLDED]
    warnings = [record.getMessage() for record in caplog.records]
    for name in names:
        [warning] = [text for text in warnings if text.startswith(f"{variable(service, name)}: ")]
        assert f"refused from {REMOVED_IN} on; {FOLDED[name].successor}" in warning
        assert FOLDED[name].into in FOLDED[name].successor
    assert len(warnings) == len(names), "current options are set without one"


def test_every_former_option_of_every_service_is_tried() -> None:
    tried = {(service, name) for service, former, _ in SAME for name in former if name in FOLDED}
    every = {
        name
        for service, config in CONFIGS.items()
        for name in folded(service, {field.name: field for field in dataclasses.fields(config)})
    }
    assert {name for _, name in tried} == every == FOLDED.keys()


@pytest.mark.parametrize(("service", "name"), CONSTANTS)
def test_a_former_option_that_is_a_constant_is_obeyed_with_a_warning(
    service: ServiceName, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {"engine_metrics": "/other", "revision": "other", "tokenize": "/other", "excess_max_tokens": "refuse"}
    value = texts.get(name, "1")
    assert str(getattr(given(service, {name: value}), name)).removesuffix(".0") == value
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"{variable(service, name)}: no option any more")
    assert len(warning.rpartition(";")[2].split()) > 1, "it says what holds now"


def test_flags_and_keys_of_former_options_are_accepted_and_the_help_hides_them(
    tmp_path: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "worker.yaml"
    file.write_text("served_name: mine\nthreads: 2\n")
    argv = ["--secret", SECRET, "--config", str(file), "--batch-invariant", "--max-waiting", "9"]
    config = load(WorkerConfig, W, argv, {}, prog="test")
    assert (config.model_names, config.threads, config.max_waiting) == (["mine"], 2, 9)
    assert config.choice.batch_invariant
    places = [record.getMessage().partition(": no option")[0] for record in caplog.records]
    assert places == [f"{file}:1: served_name", "--batch-invariant", f"{file}:2: threads", "--max-waiting"]
    with pytest.raises(SystemExit):
        load(WorkerConfig, W, ["--help"], {}, prog="test")
    shown = capsys.readouterr().out
    assert [name for name in (*FOLDED, "threads") if f"{flag(name)} " in shown] == []


def test_an_empty_variable_of_a_former_option_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert given(G, {"redis": "redis://h:1", "redis_password": ""}).redis == "redis://h:1"
    assert caplog.records == []


def test_a_former_option_of_another_service_is_refused() -> None:
    with pytest.raises(ConfigError, match="no such option"):
        load(AdapterConfig, A, ["--fake-step-seconds", "1", "--secret", SECRET], {}, prog="test")


def test_a_value_that_cannot_be_joined_is_refused_by_its_former_name() -> None:
    with pytest.raises(ConfigError, match=r"FAIRLEAD_WORKER_MEMORY_FRACTION: could not convert"):
        given(W, {"memory_fraction": "much"})
