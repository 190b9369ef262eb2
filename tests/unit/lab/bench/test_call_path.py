"""The command that counts what one call touches."""

import pytest

from lab.bench.call_path import PROTOCOLS, Size, measure, together, worker_core

pytestmark = pytest.mark.e2e


def test_a_call_by_each_protocol_is_counted_in_all_processes() -> None:
    measured = measure(tokens=4, idle_seconds=0.1)
    assert measured.keys() == PROTOCOLS.keys()
    for calls in measured.values():
        everything, core = together(calls), worker_core(calls)
        assert calls.keys() == {"global_scheduler", "local_worker", "gateway"}
        assert all(calls.values()), calls
        assert 0 < Size.of(core).calls < Size.of(everything).calls
        assert core.items() <= calls["local_worker"].items()
    # A worker without work plans twice a second, so that planning counts as background now and then.
    for name in ("Dispatcher.dispatch", "CallMachine.handle", "Batcher.commit"):
        assert any(function.endswith(f" {name}") for function in together(measured["gRPC"])), name


def test_instances_count_as_classes_and_not_as_calls() -> None:
    functions = {"a.py f": 2, "a.py A.f": 1, "b.py B.<instance>": 4, "a.py f.<locals>.<lambda>": 3}
    assert Size.of(functions) == Size(files=1, classes=2, functions=3, calls=6)
