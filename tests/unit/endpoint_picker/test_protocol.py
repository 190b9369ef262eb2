"""The endpoint picker protocol, point by point, spoken as Envoy speaks it: over gRPC with a picker that serves."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from endpoint_picker import held_bodies, request_stream
from endpoint_picker.app import ALIVE, READY, endpoint_source, make_picker, serving
from endpoint_picker.config import PickerConfig
from endpoint_picker.core.service_counters import ServiceCounters
from endpoint_picker.held_bodies import HeldBodies
from endpoint_picker.picker import Picker
from endpoint_picker.service import NAME
from global_scheduler.leadership import STANDBY, SoleLeadership
from serving.envoy import ext_proc_pb2, ext_proc_pb2_grpc, ratelimit_pb2, ratelimit_pb2_grpc
from tests.unit.endpoint_picker.stream import Stream
from tests.unit.throttler.shared import until

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "[2001:db8::3]:8000"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that nobody follows ends soon."""
    monkeypatch.setattr(request_stream, "FOLLOWING_SECONDS", 0.2)


class WatchedBodies(HeldBodies):
    """The budget, and the most that was held at a time."""

    peak = 0

    def hold(self, size: int) -> None:
        super().hold(size)
        self.peak = max(self.peak, self.held)


class Served:
    """A picker that serves in this process."""

    def __init__(self, picker: Picker, channel: grpc.aio.Channel, bodies: WatchedBodies) -> None:
        self.picker = picker
        self.channel = channel
        self.bodies = bodies

    def stream(self) -> Stream:
        return Stream(ext_proc_pb2_grpc.ExternalProcessorStub(self.channel))

    def outstanding(self) -> list[int]:
        return [self.picker.pool.outstanding(endpoint) for endpoint in self.picker.pool.endpoints]

    async def health(self, name: str) -> int:
        answer = await health_pb2_grpc.HealthStub(self.channel).Check(health_pb2.HealthCheckRequest(service=name))
        status: int = answer.status
        return status


@pytest.fixture
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    options = {"listen": "127.0.0.1:0", "endpoints": f"{A},{B},{C}", **getattr(request, "param", {})}
    config = PickerConfig(**options)
    picker, bodies = make_picker(config, ServiceCounters()), WatchedBodies()
    async with (
        serving(config, picker, endpoint_source(config), SoleLeadership(), bodies=bodies) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield Served(picker, channel, bodies)
    picker.pool.check_invariants()


def chat(text: str, **parameters: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **parameters}).encode()


async def test_the_choice_is_in_a_header_and_in_metadata_with_fallbacks_in_order(served: Served) -> None:
    stream = served.stream()
    await stream.headers(x_fairlead_user="ann")
    await stream.body(chat("hello"))
    chosen = await stream.chosen()
    assert sorted(chosen) == sorted([A, B, C])
    assert await stream.passed_on() == chat("hello")


async def test_fallbacks_come_with_the_shortest_queue_first(served: Served) -> None:
    busy = [served.stream() for _ in range(3)]
    for stream, subset in zip(busy, (A, A, B), strict=True):
        await stream.headers(subset=[subset])
        await stream.body(b"{}")
        assert (await stream.chosen())[0] == subset
    stream = served.stream()
    await stream.headers(end=True)
    assert await stream.chosen() == [C, B, A]


async def test_the_body_is_passed_on_in_pieces_as_it_was(served: Served) -> None:
    whole = chat("x" * 220_000)
    stream = served.stream()
    await stream.headers()
    for start in range(0, len(whole), 16_384):
        await stream.body(whole[start : start + 16_384], end=False)
    await stream.body(b"")
    assert await stream.chosen()
    assert await stream.passed_on() == whole
    await stream.body(b"")  # Envoy may end a body twice
    await stream.answered()


async def test_a_body_that_is_too_long_to_be_held_is_placed_by_its_beginning(served: Served) -> None:
    stream = served.stream()
    await stream.headers()
    piece = b"y" * 1_048_576
    for _ in range(4):
        await stream.body(piece, end=False)
    assert await stream.chosen()
    async with asyncio.TaskGroup() as tasks:  # what is written is taken only while answers are read
        tasks.create_task(stream.body(piece))
        passed_on = tasks.create_task(stream.passed_on())
    assert len(passed_on.result()) == 5 * len(piece)


async def test_uploads_that_never_end_share_a_budget_and_short_bodies_have_room(served: Served) -> None:
    piece, uploads = b"y" * 262_144, list[Stream]()
    for _ in range(40):  # together 2.4 times the budget
        uploads.append(served.stream())
        await uploads[-1].headers(x_fairlead_user="mallory")
        for _ in range(15):
            await uploads[-1].body(piece, end=False)
    assert await uploads[-1].chosen(), "what exceeds its share of the budget is placed by its beginning"
    assert held_bodies.MOST_TOGETHER / 8 < served.bodies.peak < held_bodies.MOST_TOGETHER
    await served.stream().place(chat("hello" * 1000), x_fairlead_user="ann")
    for upload in uploads:
        upload.call.cancel()
    await until(lambda: served.bodies.held == 0, "nothing is held of a request that is gone")


async def test_a_slow_upload_is_placed_by_what_has_arrived(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_stream, "HOLD_SECONDS", 0.05)
    stream = served.stream()
    await stream.headers()
    await stream.body(b'{"prompt": "', end=False)
    assert await stream.chosen()
    await stream.body(b'hello"}')
    assert await stream.passed_on() == b'{"prompt": "hello"}'
    assert served.bodies.held == 0


async def test_a_body_before_its_headers_and_headers_that_come_twice_are_refused(served: Served) -> None:
    stream = served.stream()
    await stream.body(b"{}")
    assert await stream.refused() == (400, "invalid-request", "the body came before the headers")
    stream = served.stream()
    await stream.headers(end=True)
    assert await stream.chosen()
    await stream.headers(end=True)
    assert await stream.refused() == (400, "invalid-request", "the headers of the request came twice")
    stream = served.stream()
    await stream.call.write(ext_proc_pb2.ProcessingRequest(request_trailers=ext_proc_pb2.HttpTrailers()))
    assert (await stream.refused())[0] == 400


@pytest.mark.parametrize("status", ["abc", "", "-1", "2 0", "9" * 5000, "²"])
@pytest.mark.parametrize("length", ["1 2", "x", "-5", "9" * 5000, "٣", "1e9"])
async def test_headers_of_an_answer_that_are_no_numbers_tell_nothing(served: Served, status: str, length: str) -> None:
    stream = served.stream()
    await stream.place(chat("hello"))
    await stream.answered(status, content_length=length)
    await stream.end()
    await until(lambda: sum(served.outstanding()) == 0, "the request has ended")


async def test_a_request_without_a_body_is_placed(served: Served) -> None:
    stream = served.stream()
    await stream.headers(end=True)
    assert len(await stream.chosen()) == 3


async def test_trailers_end_a_body(served: Served) -> None:
    stream = served.stream()
    await stream.headers()
    await stream.body(b"{}", end=False)
    await stream.call.write(ext_proc_pb2.ProcessingRequest(request_trailers=ext_proc_pb2.HttpTrailers()))
    assert await stream.chosen()
    assert not (await stream.read()).request_body.response.body_mutation.streamed_response.end_of_stream
    assert (await stream.read()).HasField("request_trailers")


@pytest.mark.parametrize("subset", [[B], [B, "10.9.9.9:1"], B, f"{B}, 10.9.9.9:1"])
async def test_only_endpoints_of_the_subset_are_chosen(served: Served, subset: Any) -> None:
    stream = served.stream()
    await stream.headers(end=True, subset=subset)
    assert await stream.chosen() == [B]


@pytest.mark.parametrize("subset", [[], ["10.9.9.9:1"]])
async def test_a_subset_without_an_endpoint_of_the_pool_is_answered_with_503(served: Served, subset: Any) -> None:
    stream = served.stream()
    await stream.headers(end=True, subset=subset)
    assert (await stream.refused())[:2] == (503, "no-endpoint")


async def test_a_pool_without_endpoints_is_answered_with_503(served: Served) -> None:
    served.picker.set_endpoints([])
    stream = served.stream()
    await stream.headers(end=True)
    assert await stream.refused() == (503, "no-endpoint", "no endpoint is ready")


async def test_a_request_ends_with_its_stream(served: Served) -> None:
    stream = served.stream()
    endpoint = await stream.place(chat("hello"))
    await stream.answered(served=endpoint)
    assert sum(served.outstanding()) == 1
    await stream.end()
    assert sum(served.outstanding()) == 0


async def test_the_endpoint_that_served_has_the_request(served: Served) -> None:
    stream = served.stream()
    endpoint = await stream.place(chat("hello" * 100))
    other = next(each for each in (A, B, C) if each != endpoint)
    await stream.answered(served=other)
    assert served.picker.pool.outstanding(other) == 1
    await stream.end()
    again = served.stream()
    assert await again.place(chat("hello" * 100)) == other


@pytest.mark.parametrize("served", [{"policy": "least-delay"}, {"policy": "doubleq"}], indirect=True)
async def test_the_charge_is_refunded_when_a_stream_is_cancelled(served: Served) -> None:
    """The client's charge is gone, so that its next request goes where the first one went."""
    stream = served.stream()
    first = await stream.place(chat("a" * 10_000), x_fairlead_user="ann")
    stream.call.cancel()
    await stream.call.code()
    while sum(served.outstanding()):
        await served.health(NAME)
    again = served.stream()
    assert await again.place(chat("b" * 10_000), x_fairlead_user="ann") == first


async def test_an_error_of_the_engine_refunds(served: Served) -> None:
    stream = served.stream()
    await stream.place(chat("hello"))
    await stream.answered(status="503")
    assert sum(served.outstanding()) == 0


async def test_a_prompt_goes_where_its_beginning_was(served: Served) -> None:
    texts = [letter * 4_000 for letter in "abc"]
    streams = [served.stream() for _ in texts]
    homes = []
    for stream, text in zip(streams, texts, strict=True):
        homes.append(await stream.place(chat(text), x_fairlead_user=text[0]))
        await stream.answered()
    assert sorted(homes) == sorted([A, B, C])
    for stream in streams:
        await stream.end()
    for text, home in zip(reversed(texts), reversed(homes), strict=True):
        stream = served.stream()
        assert await stream.place(chat(text, temperature=0.5), x_llm_d_inference_fairness_id="other") == home


@pytest.mark.parametrize(
    ("headers", "message"),
    [({"x_fairlead_user": "a\u202eb"}, "x-fairlead-user"), ({"x_fairlead_user": "x" * 200}, "128 characters")],
)
async def test_a_name_that_is_none_is_refused(served: Served, headers: dict[str, str], message: str) -> None:
    stream = served.stream()
    await stream.headers(end=True, **headers)
    status, reason, said = await stream.refused()
    assert (status, reason) == (400, "invalid-request")
    assert message in said


async def test_health_has_the_names_of_the_protocol(served: Served) -> None:
    for name in (ALIVE, READY, NAME, ""):
        assert await served.health(name) == health_pb2.HealthCheckResponse.SERVING


async def test_a_picker_that_stands_by_is_healthy_and_not_ready() -> None:
    """A Deployment counts it as available, and Envoy does not ask it."""
    config = PickerConfig(listen="127.0.0.1:0", endpoints=A)
    picker, standby = make_picker(config, ServiceCounters()), SoleLeadership()
    standby.epoch = STANDBY
    async with (
        serving(config, picker, endpoint_source(config), standby) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""))
        while (await watch.read()).status != health_pb2.HealthCheckResponse.SERVING:
            pass
        health = Served(picker, channel, WatchedBodies()).health
        assert [await health(name) for name in (ALIVE, READY, NAME)] == [
            health_pb2.HealthCheckResponse.SERVING,
            health_pb2.HealthCheckResponse.NOT_SERVING,
            health_pb2.HealthCheckResponse.NOT_SERVING,
        ]


async def tell(served: Served, pick: str, output_tokens: int) -> None:
    """Say how many tokens an output has, as Envoy does at the end of a stream."""
    request = ratelimit_pb2.RateLimitRequest(domain="fairlead")
    described = request.descriptors.add()
    described.entries.add(key="pick", value=pick.encode())
    described.hits_addend.value = output_tokens
    answer = await ratelimit_pb2_grpc.RateLimitServiceStub(served.channel).ShouldRateLimit(request)
    assert answer.overall_code == ratelimit_pb2.RateLimitResponse.OK


@pytest.mark.parametrize(
    "served", [{"endpoints": f"{A},{B}", "policy": "doubleq", "quantum_tokens": 100}], indirect=True
)
@pytest.mark.parametrize(("told", "then"), [(400, B), (0, A)])
@pytest.mark.parametrize("is_told_first", [True, False])
async def test_a_request_ends_when_envoy_says_so_and_is_charged_the_tokens_that_it_tells(
    served: Served, told: int, then: str, is_told_first: bool
) -> None:
    """DoubleQ: 400 tokens use up the quantum at A, and what is estimated of this short answer does not."""
    stream = served.stream()
    assert await stream.place(chat("x"), x_fairlead_user="ann") == A
    if is_told_first:  # on another stream than the answer's headers
        await tell(served, stream.request_id, told)
        assert sum(served.outstanding()) == 1
    await stream.answered(content_length="8")
    await tell(served, stream.request_id, told)
    assert sum(served.outstanding()) == 0
    await tell(served, "never placed", 9)
    await stream.end()
    assert served.picker.outputs == {"told" if told else "estimated": 1}
    assert await served.stream().place(chat("y"), x_fairlead_user="ann") == then


@pytest.mark.parametrize("served", [{"endpoints": A, "max_running": 1, "client_requests": 2}], indirect=True)
async def test_requests_wait_for_room_fairly_and_too_many_of_a_client_are_answered_with_429(served: Served) -> None:
    first = served.stream()
    await first.place(chat("x" * 4000), x_fairlead_user="ann")
    waiting = [served.stream() for _ in range(3)]
    for stream, user in zip(waiting, ("ann", "ann", "bob"), strict=True):
        await stream.headers(x_fairlead_user=user)
        await stream.body(b"{}")
        while served.picker.waiting < waiting.index(stream) + 1:
            await served.health(NAME)
    refused = served.stream()
    await refused.headers(end=True, x_fairlead_user="ann")
    assert (await refused.refused())[:2] == (429, "queue-full")
    waiting[0].call.cancel()
    while served.picker.waiting > 2:
        await served.health(NAME)
    await first.answered(content_length="400")
    await first.end()
    assert await waiting[2].chosen() == [A]
    assert served.picker.waiting == 1
    waiting[2].call.cancel()
    assert await waiting[1].chosen() == [A]


@pytest.mark.parametrize("served", [{"endpoints": A, "max_running": 1}], indirect=True)
async def test_requests_of_the_background_class_wait_for_all_others(served: Served) -> None:
    """A header asks for the class, or else the body does."""
    first = served.stream()
    await first.place(chat("x"), x_fairlead_user="ann")
    waiting = [served.stream() for _ in range(3)]
    asked = [("flex", b"{}"), ("", b'{"service_tier":"flex"}'), ("default", b'{"service_tier":"flex"}')]
    for stream, (tier, body) in zip(waiting, asked, strict=True):
        await stream.headers(x_fairlead_user="bob", x_fairlead_service_tier=tier)
        await stream.body(body)
        while served.picker.waiting < waiting.index(stream) + 1:
            await served.health(NAME)
    await first.answered(content_length="4")
    await first.end()
    for stream in (waiting[2], waiting[0]):
        assert await stream.chosen() == [A]
        stream.call.cancel()
    assert await waiting[1].chosen() == [A]


async def test_a_stream_that_only_observes_follows_a_request_to_its_end(served: Served) -> None:
    """The stream that placed the request ends first, without an answer."""
    placing, following = served.stream(), served.stream()
    endpoint = await placing.place(chat("hello"))
    headers = ext_proc_pb2.ProcessingRequest(observability_mode=True)
    headers.request_headers.headers.headers.add(key="x-fairlead-pick", raw_value=placing.request_id.encode())
    await following.call.write(headers)
    await served.health(NAME)  # it is answered after what was sent before it has arrived
    await placing.end()
    answer = ext_proc_pb2.ProcessingRequest(observability_mode=True)
    answer.response_headers.headers.headers.add(key=":status", raw_value=b"200")
    await following.call.write(answer)
    await asyncio.sleep(
        2 * request_stream.FOLLOWING_SECONDS
    )  # after which a request that nobody follows would have ended
    assert served.picker.pool.outstanding(endpoint) == 1
    await following.end()
    assert sum(served.outstanding()) == 0


@pytest.mark.parametrize("served", [{"endpoints": A, "max_running": 1}], indirect=True)
async def test_a_request_that_waits_goes_to_an_endpoint_that_comes_and_is_refused_where_none_is_left(
    served: Served,
) -> None:
    streams = [served.stream() for _ in range(3)]
    for number, stream in enumerate(streams):
        await stream.headers(end=True)
        while served.picker.waiting + sum(served.outstanding()) <= number:
            await served.health(NAME)
    assert await streams[0].chosen() == [A]
    served.picker.set_endpoints([A, B])
    assert await streams[1].chosen() == [B, A]
    served.picker.set_endpoints([])
    assert await streams[2].refused() == (503, "no-endpoint", "no endpoint is left")
