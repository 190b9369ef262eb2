"""What engines say of themselves as Prometheus text, in the names of vLLM, SGLang and TensorRT-LLM."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


class EngineMetrics(NamedTuple):
    """The load that an engine reports: its requests, those of all callers, and the used part of its KV cache."""

    running: int
    waiting: int
    kv_usage: float


class MetricNames(NamedTuple):
    """The names of one kind of engine."""

    running: bytes
    waiting: bytes
    kv_usage: bytes


ENGINES = (
    MetricNames(b"vllm:num_requests_running", b"vllm:num_requests_waiting", b"vllm:kv_cache_usage_perc"),
    MetricNames(b"sglang:num_running_reqs", b"sglang:num_queue_reqs", b"sglang:token_usage"),
    MetricNames(b"trtllm_num_requests_running", b"trtllm_num_requests_waiting", b"trtllm_kv_cache_utilization"),
)


def load_of(text: bytes) -> EngineMetrics:
    """Return what an engine's metrics say; raises ValueError if they are of no known engine, or hold no numbers.

    An endpoint may have several ranks. Their requests are added; a request finds memory at the rank that has most.
    """
    text = b"\n" + text
    for names in ENGINES:
        if b"\n" + names.running in text:
            return EngineMetrics(
                int(_value(text, names.running, sum)),
                int(_value(text, names.waiting, sum)),
                _value(text, names.kv_usage, min),
            )
    raise ValueError("these are no metrics of vLLM, SGLang or TensorRT-LLM")


def total(text: bytes, name: str) -> float:
    """Return the sum of the samples of the metric `name`; raises ValueError if there is none, or one is no number."""
    return _value(b"\n" + text, name.encode(), sum)


def _value(text: bytes, name: bytes, combine: Callable[[Iterable[float]], float]) -> float:
    samples = list(_samples(text, name))
    if not samples or not all(math.isfinite(each) and each >= 0 for each in samples):
        raise ValueError(f"{name.decode()} has the values {samples}")
    return combine(samples)


def _samples(text: bytes, name: bytes) -> Iterator[float]:
    """Yield the values of all samples of one name in `text`, where a line break is before each line."""
    sought, at = b"\n" + name, 0
    while (start := text.find(sought, at)) >= 0:
        at = start + len(sought)
        end = text.find(b"\n", at)
        line = text[at : end if end >= 0 else len(text)]
        if line[:1] in (b" ", b"{"):  # else the name goes on
            value, *_ = line.rpartition(b"}")[2].split()
            yield float(value)
