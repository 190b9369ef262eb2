"""Bodies and messages of 4 MiB that become as much as they can: they cost a gateway little more than a text."""

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fairlead.v1 import inference_pb2
from gateway.http.decoding import MAX_ELEMENTS
from serving.rpc.channel import MAX_REQUEST_BYTES
from tests.services import Process, Stack
from tests.system.attacks.large_bodies import CHAT_BEGIN, SPARE, bodies
from tests.system.attacks.report import Memory, Report
from tests.system.attacks.sizes import Sizes
from tests.system.attacks.test_fuzz import end_of
from tests.unit.gateway.http.http_client import CHAT, MESSAGES, HttpClient

MOST = 6  # times the processor time of a text
MOST_MESSAGE = 30  # times that of a message with a text, which is a copy of bytes: parsing small messages is not
GROWTH = 150  # MiB
TEXT = "a text"
TARGET = 2  # times as long as alone
STEP_SECONDS = 0.01  # of the model: a call of 20 tokens takes 0.2 s
LOOPED = ("tool calls of a message", "metadata", "prompt.chat.tools")  # the dearest before they were bounded


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    stack = Stack(tmp_path_factory.mktemp("stack"))
    stack.worker("a", model="tiny", engine=f"fake:{STEP_SECONDS}")
    yield stack.gateway(http_listen="127.0.0.1:0", throttle="none")
    stack.close()


@pytest.fixture(scope="module")
def http(gateway: Process) -> HttpClient:
    return HttpClient(gateway.wait_for("listening")["http_port"])


def cost(gateway: Process, http: HttpClient, name: str) -> float:
    """Return the gateway's processor time for one such body, in seconds."""
    path, body = bodies()[name]
    before = gateway.cpu_seconds
    assert http.post(path, body).status == 400, name
    return gateway.cpu_seconds - before


def test_a_body_costs_little_more_than_a_text(gateway: Process, http: HttpClient) -> None:
    memory = Memory(gateway=gateway)
    text = statistics.median(cost(gateway, http, TEXT) for _ in range(3))
    dear = {name: round(each, 3) for name in bodies() if (each := cost(gateway, http, name)) > MOST * text}
    assert not dear, f"a text: {text:.3f} s"
    assert memory.grown < GROWTH


NUMBERS = b"[" + b",".join([b"1.5"] * (MAX_ELEMENTS - SPARE)) + b"]"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (CHAT, CHAT_BEGIN + b'"metadata":%b}' % NUMBERS, 200),
        (CHAT, CHAT_BEGIN + b'"metadata":%b,"n":0}' % NUMBERS, 400),
        (CHAT, CHAT_BEGIN + b'"n":"%b"}' % (b"x" * (MAX_REQUEST_BYTES - SPARE)), 400),
        (MESSAGES, b'{"max_tokens":1,"messages":[],"metadata":%b}' % NUMBERS, 400),
    ],
)
def test_bodies_one_after_the_other_take_the_memory_of_a_few(
    gateway: Process, http: HttpClient, path: str, body: bytes, status: int
) -> None:
    http.post(path, body)
    memory = Memory(gateway=gateway)
    assert {http.post(path, body).status for _ in range(20)} == {status}
    assert memory.grown < GROWTH, memory


def repeated(descriptor: Descriptor, around: tuple[FieldDescriptor, ...] = ()) -> Iterator[tuple[FieldDescriptor, ...]]:
    """Yield the ways to every repeated field of a message, also in its messages; maps are lists of their entries."""
    for field in descriptor.fields:
        way = (*around, field)
        if field.is_repeated:
            yield way
        if field.message_type is not None and field.message_type not in [each.message_type for each in around]:
            yield from repeated(field.message_type, way)


def delimited(field: FieldDescriptor, content: bytes) -> bytes:
    """Return a field of a message as it is on the wire."""
    return varint(field.number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    """Return a number as it is on the wire."""
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


REQUEST: Any = inference_pb2.GenerateRequest.DESCRIPTOR
WAYS = {".".join(field.name for field in way): way for way in repeated(REQUEST)}
PROMPT = REQUEST.fields_by_name["prompt"]
PROMPT_TEXT = PROMPT.message_type.fields_by_name["text"]


def message(way: tuple[FieldDescriptor, ...]) -> bytes:
    """Return a message of 4 MiB that consists of empty elements of a repeated field."""
    *around, field = way
    unit = delimited(field, b"")
    data = unit * ((MAX_REQUEST_BYTES - SPARE) // len(unit))
    for outer in reversed(around):
        data = delimited(outer, data)
    return data


def message_cost(gateway: Process, data: bytes) -> float:
    """Return the gateway's processor time for one message, in seconds."""
    with grpc.insecure_channel(gateway.address) as channel:
        generate = channel.unary_stream("/fairlead.v1.Inference/Generate")
        before = gateway.cpu_seconds
        call = generate(data, timeout=60)
        with pytest.raises(grpc.RpcError):
            list(call)
        assert call.code() is grpc.StatusCode.INVALID_ARGUMENT, call.details()
    return gateway.cpu_seconds - before


def test_a_message_costs_a_bounded_multiple_of_a_text(gateway: Process) -> None:
    assert len(WAYS) > 5
    large = delimited(PROMPT, delimited(PROMPT_TEXT, b"x" * (MAX_REQUEST_BYTES - SPARE)))
    text = statistics.median(message_cost(gateway, large) for _ in range(3))
    costs = {name: round(message_cost(gateway, message(way)), 3) for name, way in WAYS.items()}
    assert max(costs.values()) < MOST_MESSAGE * text, f"{costs}; a text: {text:.3f} s"


@contextmanager
def looping(send: Callable[[], str]) -> Iterator[Counter[str]]:
    """Send in a loop, and count how it ends."""
    ends, is_over = Counter[str](), threading.Event()

    def attack() -> None:
        while not is_over.is_set():
            ends[send()] += 1

    thread = threading.Thread(target=attack)
    thread.start()
    try:
        yield ends
    finally:
        is_over.set()
        thread.join()


def body_sender(connection: HTTPConnection, name: str) -> Callable[[], str]:
    """Return a function that sends a body, and returns the status with which it is refused."""
    path, body = bodies()[name]

    def send() -> str:
        connection.request("POST", path, body)
        response = connection.getresponse()
        response.read()
        return str(response.status)

    return send


def message_sender(channel: grpc.Channel, name: str) -> Callable[[], str]:
    """Return a function that sends a message, and returns the status with which it is refused."""
    data, generate = message(WAYS[name]), channel.unary_stream("/fairlead.v1.Inference/Generate")
    return lambda: end_of(generate(data, timeout=60))


def median(http: HttpClient, calls: int) -> float:
    """Return the median of honest calls' seconds; all must be served."""
    seconds = []
    for _ in range(calls):
        begun = time.monotonic()
        assert http.chat(max_tokens=20, ignore_eos=True).status == 200
        seconds.append(time.monotonic() - begun)
    return statistics.median(seconds)


MEASURED_AGAIN = 4  # times as many calls, where a few have missed the target


def slowed(http: HttpClient, send: Callable[[], str], calls: int) -> tuple[float, float, Counter[str]]:
    """Return how many times as long honest calls take beside a loop, their time alone, and how the loop's end."""
    before = median(http, calls)
    with looping(send) as ends:
        beside = median(http, calls)
    alone = statistics.mean([before, median(http, calls)])  # what else the machine does changes meanwhile
    return beside / alone, alone, ends


def test_honest_calls_beside_a_loop(gateway: Process, http: HttpClient, sizes: Sizes, report: Report) -> None:
    """How long calls take is looked at by `make attack`, with all bodies: machines that test are shared."""
    is_measured = sizes.honest > Sizes().honest
    names = [*bodies(), *WAYS] if is_measured else LOOPED
    times: dict[str, float] = {}  # that of an honest call alone
    connection = HTTPConnection("127.0.0.1", http.port, timeout=60)
    with closing(connection), grpc.insecure_channel(gateway.address) as channel:
        for name in names:
            send = body_sender(connection, name) if name in bodies() else message_sender(channel, name)
            memory = Memory(gateway=gateway)
            times[name], alone, ends = slowed(http, send, sizes.honest)
            if is_measured and times[name] >= TARGET:
                times[name], alone, ends = slowed(http, send, MEASURED_AGAIN * sizes.honest)
            figure = f"an honest call takes {times[name]:.2f} times its {alone:.2f} s alone"
            report.add(f"bodies of 4 MiB in a loop: {name}; {figure}", ends, memory)
            assert ends.keys() <= {"400", "INVALID_ARGUMENT"}
    worst = max(times, key=times.__getitem__)
    what = f"median of an honest call beside the worst body of 4 MiB in a loop, of {len(names)}: {worst}"
    measured = (
        f"{times[worst]:.2f} times its own alone; the median of all bodies {statistics.median(times.values()):.2f}"
    )
    report.target(what, measured, f"below {TARGET}")
    assert not is_measured or times[worst] < TARGET, times
