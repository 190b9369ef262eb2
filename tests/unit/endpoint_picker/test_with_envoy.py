"""The endpoint picker behind a real Envoy, in front of engines that speak OpenAI's API."""

import statistics
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.served_engine.process import EngineProcess
from tests.metrics import samples, scrape
from tests.redis_server import RedisServer
from tests.services import Process, eventually
from tests.unit.endpoint_picker.calls import Call, CallForUsage
from tests.unit.endpoint_picker.example import LISTENER, example, http_manager
from tests.unit.throttler.envoy_proxy import EnvoyProxy

pytestmark = pytest.mark.e2e
STREAMS = "cluster.picker.upstream_rq_active"
REQUESTS = "cluster.picker.upstream_rq_total"
HEALTHY = "cluster.picker.membership_healthy"
STAY = list(b"stay")  # a prompt whose call ends when the test closes it


class Front:
    """Two engines with the flags `engine`, a picker with `options`, or two with a Redis, and an Envoy."""

    def __init__(
        self,
        directory: Path,
        engine: dict[str, object],
        change: Callable[[dict[str, Any]], None] = lambda config: None,  # of Envoy's configuration
        **options: object,
    ) -> None:
        self.engines = [EngineProcess(directory / f"engine-{n}.log", events=False, **engine) for n in range(2)]
        for each in self.engines:
            each.metric("served_engine_most_requests")
        addresses = ",".join(each.address for each in self.engines)
        settings: dict[str, object] = {
            "listen": "127.0.0.1:0",
            "endpoints": addresses,
            "metrics": "127.0.0.1:0",
            **options,
        }
        number = 2 if "redis" in settings else 1
        logs = [directory / f"picker-{n}.log" for n in range(number)]
        self.pickers = [Process("endpoint_picker", log, settings) for log in logs]
        self.picker = self.pickers[0]
        ports = [int(each.address.rpartition(":")[2]) for each in self.pickers]
        config = example(ports, [each.port for each in self.engines])
        change(config)
        self.envoy = EnvoyProxy(config, directory)
        self._port = self.envoy.port_of(LISTENER)
        eventually(lambda: self.envoy.statistic(HEALTHY), "Envoy knows a picker that leads")

    def call(self, prompt: list[int], max_tokens: int = 4, **headers: str) -> Call:
        return Call(self._port, prompt, max_tokens, **headers)

    def call_for_usage(self, prompt: list[int]) -> Call:
        return CallForUsage(self._port, prompt)

    def stop(self) -> None:
        self.envoy.close()
        for picker in self.pickers:
            picker.kill()
        for engine in self.engines:
            engine.kill()


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """For tests that leave all processes as they are."""
    front = Front(tmp_path_factory.mktemp("envoy"), {"max_num_seqs": 64, "budget": 4096})
    yield front
    front.stop()


@pytest.fixture
def own_front(tmp_path: Path) -> Iterator[Front]:
    """For tests that end processes; its engines take 10 ms for a token."""
    front = Front(tmp_path, {"step_seconds": 0.01})
    yield front
    front.stop()


def test_64_streamed_calls_at_once_are_whole_and_spread_over_the_engines(front: Front) -> None:
    with ThreadPoolExecutor(64) as pool:
        users = [f"u{number % 7}" for number in range(64)]
        staying = list(pool.map(lambda n: front.call([*STAY, *[n] * 36], x_fairlead_user=users[n]), range(64)))
        calls = list(pool.map(lambda n: front.call([n] * 40, 8, x_fairlead_user=users[n]), range(64)))
        assert set(pool.map(Call.rest, calls)) == {8}
    for call in staying:
        call.close()
    served = Counter(call.served_by for call in staying)
    assert served.keys() == {each.port for each in front.engines}
    assert min(served.values()) >= 20


def test_a_conversation_stays_where_its_beginning_is_cached(front: Front) -> None:
    turns = []
    for length in (200, 264, 328):
        # While the picker counts an earlier call, computing the beginning again may take less time than waiting there.
        eventually(lambda: front.envoy.statistic(STREAMS) == 0, "earlier calls have ended")
        turns.append(front.call([7] * length, x_fairlead_user="ann"))
        assert turns[-1].rest() == 4
    for earlier, later in pairwise(turns):
        assert earlier.served_by == later.served_by


def test_the_pickers_stream_lasts_as_long_as_the_answer(front: Front) -> None:
    eventually(lambda: front.envoy.statistic(STREAMS) == 0, "earlier streams end")
    call = front.call(STAY)
    assert call.chunk()
    eventually(lambda: front.envoy.statistic(STREAMS) == 1, "the stream that places the request is done")
    assert front.call([1] * 20).rest() == 4
    eventually(lambda: front.envoy.statistic(STREAMS) == 1, "the streams of a call that has ended end")
    call.close()
    eventually(lambda: front.envoy.statistic(STREAMS) == 0, "the stream ends")


def test_metrics_say_what_became_of_requests(front: Front) -> None:
    front.call([6] * 20).rest()
    port = front.picker.wait_for("listening")["metrics_port"]
    found = samples(scrape(port)[1])
    outcomes = {labels["outcome"]: count for labels, count in found["fairlead_picker_requests_total"]}
    assert outcomes["placed"] >= 1
    assert [count for _, count in found["fairlead_picker_endpoints"]] == [2]
    assert [count for _, count in found["fairlead_picker_waiting"]] == [0]
    eventually(lambda: answering(port) == 2, "the engines' metrics are read")


def answering(port: int) -> float:
    """The endpoints whose queues are known from their metrics."""
    found = samples(scrape(port)[1])["fairlead_picker_queues"]
    return {labels["source"]: count for labels, count in found}["metrics"]


def test_outputs_are_charged_with_the_tokens_that_the_engine_tells_where_callers_ask_for_them(front: Front) -> None:
    """Where the end of the stream comes before what is told, which nothing excludes, the output is estimated."""

    def told() -> float:
        front.call_for_usage([8] * 20).rest()
        return value(front.picker, "fairlead_picker_outputs_total", source="told")

    assert value(front.picker, "fairlead_picker_outputs_total", source="told") == 0
    eventually(told, "tokens are told")


def test_the_picker_is_told_of_ends_whatever_is_known_of_the_output(front: Front) -> None:
    """A call has two streams to the picker, and a third message when it has ended."""

    def has_told() -> bool:
        before = front.envoy.statistic(REQUESTS)
        front.call([9] * 20).rest()
        return front.envoy.statistic(REQUESTS) - before >= 3

    eventually(has_told, "the end is told")


def test_the_subset_of_a_data_plane_is_kept(front: Front) -> None:
    for engine in front.engines * 2:
        call = front.call([2] * 100, x_subset=engine.address)
        assert (call.rest(), call.served_by) == (4, engine.port)
    refused = front.call([2] * 100, x_subset="127.0.0.9:1")
    assert refused.status == 503
    assert refused.error() == ("no-endpoint", "no endpoint of the subset is ready")


def test_a_header_of_the_caller_chooses_no_endpoint(front: Front) -> None:
    """It is overwritten, and Envoy does not read it."""
    call = front.call([3] * 20, x_gateway_destination_endpoint="127.0.0.1:1")
    assert (call.status, call.rest()) == (200, 4)


def test_a_flooder_delays_a_light_user_only_where_both_have_no_names(tmp_path: Path) -> None:
    """A flooder keeps 48 calls open at engines that run 4 each; a light user makes one call after the other."""
    front = Front(tmp_path, {"step_seconds": 0.004, "max_num_seqs": 4}, max_running=4)
    try:
        before = {named: calls_before_the_light_user(front, named) for named in (False, True)}
    finally:
        front.stop()
    assert before[True] < before[False] / 2


def calls_before_the_light_user(front: Front, are_named: bool) -> float:
    """Return the median number of the flooder's calls that end while a call of the light user has no token."""
    is_over, ended = threading.Event(), count()

    def flood(number: int) -> None:
        while not is_over.is_set():
            front.call([number] * 40, 20, **({"x_fairlead_user": "flooder"} if are_named else {})).rest()
            next(ended)

    def overtaken_by() -> int:
        before = next(ended)
        front.call([99] * 40, 2, **headers).seconds_to_first_token()
        return next(ended) - before - 1

    with ThreadPoolExecutor(48) as flooder:
        for number in range(48):
            flooder.submit(flood, number)
        eventually(lambda: front.envoy.statistic(STREAMS) >= 40, "the flood is there")
        headers = {"x_fairlead_user": "light"} if are_named else {}
        try:
            return statistics.median(overtaken_by() for _ in range(3))
        finally:
            is_over.set()


def test_a_killed_engine_is_replaced_by_the_next_on_the_list(own_front: Front) -> None:
    first = own_front.call([5] * 200)
    first.rest()
    (home,) = [each for each in own_front.engines if each.port == first.served_by]
    home.kill()
    again = own_front.call([5] * 200)
    assert (again.status, again.rest()) == (200, 4)
    assert again.served_by != home.port
    # The picker was told who served, and keeps to it.
    before = own_front.envoy.statistic("cluster.engines.upstream_rq_retry")
    assert before >= 1
    assert own_front.call([5] * 200, x_fairlead_user="bob").rest() == 4
    assert own_front.envoy.statistic("cluster.engines.upstream_rq_retry") == before


def test_without_a_picker_calls_go_to_any_engine(own_front: Front) -> None:
    """Envoy fails open once its health check has failed; before, it has sent a body that nobody returns."""
    own_front.picker.kill()
    eventually(lambda: own_front.envoy.statistic(HEALTHY) == 0, "the health check fails")
    calls = [own_front.call([n] * 20) for n in range(8)]
    assert [(call.status, call.rest()) for call in calls] == [(200, 4)] * 8


def fail_closed(config: dict[str, Any]) -> None:
    """Let no filter do without its picker."""
    for each in http_manager(config)["http_filters"]:
        if "failure_mode_allow" in each["typed_config"] and not each["typed_config"].get("observability_mode"):
            each["typed_config"]["failure_mode_allow"] = False


def test_without_a_picker_calls_are_refused_where_envoy_fails_closed(tmp_path: Path) -> None:
    front = Front(tmp_path, {}, fail_closed)
    try:
        assert front.call([1] * 20).rest() == 4
        front.picker.kill()
        eventually(lambda: front.envoy.statistic(HEALTHY) == 0, "the health check fails")
        refused = front.call([1] * 20)
        assert refused.status == 500
        refused.close()
    finally:
        front.stop()


@pytest.mark.parametrize("end", [Process.terminate, Process.kill])
def test_open_calls_go_on_without_the_picker(own_front: Front, end: Callable[[Process], object]) -> None:
    calls = [own_front.call([n] * 20, 300) for n in range(3)]
    assert all(call.chunk() for call in calls)
    end(own_front.picker)
    assert [call.rest() for call in calls] == [299] * 3


def test_a_picker_that_stands_by_takes_over_with_the_accounts_of_clients_once_the_leader_is_killed(
    tmp_path: Path,
) -> None:
    """Until it leads no picker is ready, and Envoy fails open; calls whose answers have begun go on."""
    redis = RedisServer(tmp_path)
    # Outputs of calls that are broken off are estimated by their time: here they count next to nothing.
    front = Front(tmp_path, {"step_seconds": 0.01}, redis=redis.url, max_running=1, output_rate=0.001)
    try:
        eventually(lambda: sorted(map(epoch, front.pickers)) == [0, 1], "one of two leads")
        standby, leader = sorted(front.pickers, key=epoch)
        eventually(lambda: front.envoy.statistic(HEALTHY) == 1, "Envoy knows the leader")
        call = front.call([1] * 300, 300, x_fairlead_user="heavy")
        assert call.chunk()
        assert placed(leader) == 1
        eventually(lambda: any(redis.client.hget(key, "heavy") for key in redis.client.keys("*:service")), "is shared")
        leader.kill()
        eventually(lambda: epoch(standby) == 2, "the other leads")
        eventually(lambda: front.call([2] * 20).rest() == 4 and placed(standby) > 0, "Envoy knows the new leader")
        assert call.rest() == 299
        assert order_of(front, standby, "light", "light", "heavy") == ["light", "light", "heavy"]
    finally:
        front.stop()
        redis.kill()


def order_of(front: Front, picker: Process, *users: str) -> list[str]:
    """The order in which calls get their turn at one engine, which began to wait in the order of `users`."""
    engine = front.engines[0].address
    staying = front.call(STAY, x_fairlead_user="another", x_subset=engine)
    order = []
    with ThreadPoolExecutor(len(users)) as pool:
        calls = {}
        for number, user in enumerate(users, 1):
            calls[pool.submit(front.call, STAY, x_fairlead_user=user, x_subset=engine)] = user
            eventually(lambda: value(picker, "fairlead_picker_waiting") == number, "the call waits")  # noqa: B023
        staying.close()
        while calls:
            (first,), _ = futures.wait(calls, return_when=futures.FIRST_COMPLETED)
            order.append(calls.pop(first))
            first.result().close()
    return order


def epoch(picker: Process) -> float:
    return value(picker, "fairlead_picker_epoch")


def placed(picker: Process) -> float:
    return value(picker, "fairlead_picker_requests_total")


def value(picker: Process, metric: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    port = picker.wait_for("listening")["metrics_port"]
    found = samples(scrape(port)[1]).get(metric, ())
    return sum(count for given, count in found if labels.items() <= given.items())
