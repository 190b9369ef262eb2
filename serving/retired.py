"""Options of the version before, which services accept for one version more, each with a warning.

An option was folded into another one, which takes its value, or has become a constant: a field of the configuration
that no page lists, whose former flag, variable and key still set it.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from serving.environment import ServiceName

REMOVED_IN = "0.4"
Join = Callable[[str, str], str]  # from the value of the option that remains, and of the one that was folded into it


@dataclasses.dataclass(frozen=True, slots=True)
class Folded:
    """An option that is a part of the option `into` now, in the form `successor`; of `services`, or else of all."""

    into: str
    successor: str
    join: Join
    services: tuple[ServiceName, ...] = ()
    is_switch: bool = False


def constant(default: Any, instead: str = "") -> Any:
    """Return a config field without an option; `instead` says what takes the place of its former option."""
    metadata = {"help": "", "choices": (), "unit": "", "retired": instead or f"it is always {default}"}
    return dataclasses.field(default=default, metadata=metadata)


def options(cls: type[Any]) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(cls) if "retired" not in field.metadata]


def folded(service: ServiceName, names: Mapping[str, Any]) -> dict[str, Folded]:
    """Return the former options of `service`, whose fields have these `names`, that were folded into others."""
    return {
        name: fold
        for name, fold in FOLDED.items()
        if fold.into in names and (not fold.services or service in fold.services)
    }


def warning(former: str, successor: str) -> str:
    """Return the warning about a former option that is given; `former` says where."""
    return f"{former}: no option any more, and refused from {REMOVED_IN} on; {successor}"


def _part(place: int, separator: str = ",") -> Join:
    """Return the function that puts a value at `place` among the parts of the other option's value."""

    def join(whole: str, part: str) -> str:
        parts = whole.split(separator) if whole else []
        parts += [""] * (place + 1 - len(parts))
        parts[place] = part
        return separator.join(parts)

    return join


def _number(place: int, of: str = "") -> Join:
    """Return the function that puts a number at `place` in `name:numbers`, if the name is `of` or `of` is empty."""

    def join(whole: str, number: str) -> str:
        name, _, numbers = whole.partition(":")
        return whole if of not in ("", name) else f"{name}:{_part(place)(numbers, number)}"

    return join


def _renamed(_: str, value: str) -> str:
    return value


def _further(whole: str, part: str) -> str:
    return f"{whole},{part}" if whole else part


def _with_key(engine: str, key: str) -> str:
    scheme, mark, address = engine.rpartition("://")
    return f"{scheme}{mark}:{quote(key, safe='')}@{address}"


def _with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss"):
        return _with_query(url, "password", password) if url else url
    user, address = parts.username or "", parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{address}"))


def _with_authority(url: str, file: str) -> str:
    return _with_query(url, "ssl_ca_certs", file) if url else url


def _with_query(url: str, key: str, value: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode({key: value})}"


def _with_metric(urls: str, metric: str) -> str:
    return f"{urls}#{metric}"


def _with_threshold(urls: str, threshold: str) -> str:
    return f"{urls}{'' if '#' in urls else '#'}>={threshold}" if urls else urls


def _with_part_of_memory(kv_tokens: str, fraction: str) -> str:
    part = f"{100 * float(fraction):g}%"
    return f"{kv_tokens},{part}" if kv_tokens else part


def _with_name(model: str, name: str) -> str:
    return f"{name}={model}"


def _with_other_domains(domains: str, unknown: str) -> str:
    return f"{domains},*" if unknown == "allow" else domains


def _with_runner(engine: str, runner: str) -> str:
    return f"{engine}:{runner}" if engine == "vllm" and runner != "v1" else engine


def _batch_invariant(engine: str, value: str) -> str:
    return f"{engine}:batch-invariant" if value == "true" else engine


def _below_url(endpoints: str, url: str) -> str:
    return f"{url.rstrip('/')}/{endpoints}"


_INTERNAL_TLS = "write internal_tls: CERTIFICATE,KEY,AUTHORITY"
_THROTTLE = "write throttle: oit:USER_PER_MINUTE,APP_PER_MINUTE, or a limit of the profiles"
_TLS = "write tls: CERTIFICATE,KEY"
_PICKER, _WORKER, _ADAPTER = (ServiceName.PICKER,), (ServiceName.WORKER,), (ServiceName.ADAPTER,)
# By their names. One that is joined after another comes after it.
FOLDED: Mapping[str, Folded] = {
    "tls_certificate": Folded("tls", _TLS, _part(0)),
    "tls_key": Folded("tls", _TLS, _part(1)),
    "internal_certificate": Folded("internal_tls", _INTERNAL_TLS, _part(0)),
    "internal_key": Folded("internal_tls", _INTERNAL_TLS, _part(1)),
    "internal_authority": Folded("internal_tls", _INTERNAL_TLS, _part(2)),
    "redis_password": Folded("redis", "write redis: redis://:PASSWORD@host:port", _with_password),
    "redis_ca": Folded("redis", "write redis: rediss://host:port?ssl_ca_certs=FILE", _with_authority),
    "http_origins": Folded(
        "http_hosts", "name origins in http_hosts", lambda whole, part: f"{whole},{part}".strip(",")
    ),
    "user_per_minute": Folded("throttle", _THROTTLE, _number(0)),
    "app_per_minute": Folded("throttle", _THROTTLE, _number(1)),
    "overload_metric": Folded("overload_metrics", "write overload_metrics: URLS#METRIC", _with_metric),
    "overload_threshold": Folded("overload_metrics", "write overload_metrics: URLS#METRIC>=NUMBER", _with_threshold),
    "unknown_domain": Folded("domains", "write domains: NAMES,*", _with_other_domains),
    "inference_pool": Folded("endpoints", "write endpoints: NAMESPACE/NAME", _renamed, _PICKER),
    "kubernetes": Folded("endpoints", "write endpoints: http://host:port/NAMESPACE/NAME", _below_url, _PICKER),
    "endpoint_requests": Folded("max_running", "write max_running", _renamed, _PICKER),
    "endpoint_kv_tokens": Folded("kv_tokens", "write kv_tokens", _renamed, _PICKER),
    "kv_events_port": Folded("kv_events", "write kv_events", _part(0), _PICKER),
    "kv_replay_port": Folded("kv_events", "write kv_events: PORT,REPLAY_PORT", _part(1), _PICKER),
    "kv_replay": Folded("kv_events", "write kv_events: tcp://host:port,tcp://host:port", _part(1), _ADAPTER),
    "engine_api_key": Folded("engine", "write engine: http://:KEY@host:port", _with_key, _ADAPTER),
    "served_name": Folded("model", "write model: NAME=MODEL", _with_name, _WORKER),
    "memory_fraction": Folded("kv_tokens", "write kv_tokens: 90%", _with_part_of_memory, _WORKER),
    "fake_step_seconds": Folded("engine", "write engine: fake:SECONDS,BYTES", _number(0, "fake"), _WORKER),
    "fake_token_bytes": Folded("engine", "write engine: fake:SECONDS,BYTES", _number(1, "fake"), _WORKER),
    "vllm_runner": Folded("engine", "write engine: vllm:v2", _with_runner, _WORKER),
    "batch_invariant": Folded(
        "engine", "write engine: transformers:batch-invariant", _batch_invariant, _WORKER, is_switch=True
    ),
}
