"""Texts that are made to take long, at every place of every request: they cost a gateway what a plain text costs.

What takes the square of a text's length takes many times as long for them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from fairlead.v1 import inference_pb2
from gateway.http.common_fields import HEADERS
from serving.rpc.channel import MAX_REQUEST_BYTES
from tests.services import Process, Stack
from tests.system.attacks.report import Memory, Report
from tests.system.attacks.sizes import Sizes
from tests.system.attacks.test_fuzz import end_of
from tests.system.attacks.text_places import text_places
from tests.unit.gateway.http.http_client import MODELS, HttpClient

MOST = 10  # times the processor time of a plain text
SPARE = 0.06  # seconds, of what a process does beside
ROOM = 4096  # bytes of a message beside its text
HEADER_BYTES = 8192
MARK = "here is the value"
MARKED = f'"{MARK}"'.encode()
ENDS = ("OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")
Send = Callable[[str], None]


def cut(unit: str, size: int) -> str:
    """Return so many bytes of a text that repeats `unit`, at most."""
    return unit * (size // len(unit.encode()))


def ids(size: int) -> str:
    """Return a text that is nearly an id, the place of an error, white space before a call, and a call."""
    each = size // 4
    return "\n".join(
        (
            "user_" + cut("_account_", each),
            cut(" - at `$.", each),
            cut(" ", each) + "x",
            cut("<tool_call>\n<function=", each),
        )
    )


def accents(size: int) -> str:
    """Return a letter with so many accents, none of which is where it belongs."""
    return "a" + cut("\u0301", size // 2) + cut("\u0323", size // 2)


def almost_json(size: int) -> str:
    """Return a text that is nearly JSON, with escapes and without an end."""
    each = size // 4
    return '{"session_id":"' + cut("\\\\", each) + '","a":' + cut('"\\"', each) + cut("[{", each) + cut('"a":', each)


Crafted = Mapping[str, Callable[[int], str]]
TEXTS: Crafted = {"ids": ids, "accents": accents, "almost JSON": almost_json}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Open to everybody, who may name users and apps."""
    stack = Stack(tmp_path_factory.mktemp("stack"))
    stack.worker("a", model="tiny")
    yield stack.gateway(http_listen="127.0.0.1:0", throttle="none")
    stack.close()


@pytest.fixture(scope="module")
def connection(gateway: Process) -> Iterator[HTTPConnection]:
    port = gateway.wait_for("listening")["http_port"]
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    yield connection
    connection.close()


def ask(connection: HTTPConnection, method: str, path: str, body: bytes, headers: Mapping[str, bytes]) -> None:
    """Make a request, which must be answered or refused with a status that is documented."""
    connection.request(method, path, body, dict(headers))
    response = connection.getresponse()
    answer = response.read()
    assert response.status == 200 or 400 <= response.status < 499, answer


def check(
    gateway: Process,
    places: Mapping[str, Send],
    size: int,
    report: Report,
    crafted_kinds: Crafted,
    plain_kind: str = "x",
) -> None:
    """Send a plain text and crafted ones to all places."""
    memory = Memory(gateway=gateway)
    dear: dict[str, str] = {}

    def cost(send: Send, text: str) -> float:
        before = gateway.cpu_seconds
        send(text)
        return gateway.cpu_seconds - before

    for name, send in places.items():
        for kind, text in crafted_kinds.items():
            crafted = cost(send, text(size))
            if crafted > SPARE and crafted > MOST * (plain := cost(send, cut(plain_kind, size))) + SPARE:
                dear[f"{name}, {kind}"] = f"{crafted:.3f} s, a plain text {plain:.3f} s"
    kinds = ", ".join(crafted_kinds)
    report.add(f"{kinds} of {size} bytes", Counter({"as a plain text": len(places) * len(crafted_kinds)}), memory)
    assert not dear


def full(unit: str) -> Callable[[int], str]:
    """Return a function that makes a list of `unit` of so many bytes."""
    return lambda size: f"[{cut(unit + ',', size - len(unit) - 2)}{unit}]"


VALUES: Crafted = {
    "lists": full("[]"),
    "objects": full('{"":0}'),
    "texts": full('""'),
    "numbers near zero": full("50e-325"),
    "long integers": full("9" * 600),
}


def test_values(gateway: Process, connection: HTTPConnection, sizes: Sizes, report: Report) -> None:
    """At every place at which a text may be, also where its type wants something else."""
    places: dict[str, Send] = {}
    for place in text_places():
        before, _, after = place.body(MARK).partition(MARKED)

        def send(value: str, path: str = place.path, around: tuple[bytes, bytes] = (before, after)) -> None:
            ask(connection, "POST", path, value.encode().join(around), {})

        if after:  # a value, and not the name of a field
            places.setdefault(place.field, send)
    assert len(places) > 100
    check(gateway, places, 4 * sizes.crafted, report, VALUES, "1,")


def test_bodies(gateway: Process, connection: HTTPConnection, sizes: Sizes, report: Report) -> None:
    is_small = sizes.crafted == Sizes().crafted
    places: dict[str, Send] = {}
    for place in text_places():
        name = place.field if is_small else f"{place.path} {place.name}"

        def send(text: str, place: Any = place) -> None:
            ask(connection, "POST", place.path, place.body(text), {})

        places.setdefault(name, send)
    check(gateway, places, sizes.crafted - ROOM, report, TEXTS)


def test_every_endpoint_that_takes_a_body_is_tried(connection: HTTPConnection) -> None:
    """A gateway says at its root what is where."""
    paths = HttpClient(connection.port).get("/").json["paths"]
    assert {*paths} - {MODELS, "/health", "/version"} == {place.path for place in text_places()}


def test_headers_and_paths(gateway: Process, connection: HTTPConnection, report: Report) -> None:
    known = ("x-fairlead-user", "x-fairlead-app", "x-fairlead-interaction", "x-fairlead-streaming", "x-request-id")
    sessions = [name for header in HEADERS for name in header if name]
    headers = (*known, *sessions, "x-api-key", "authorization", "traceparent", "x-fairlead-timeout")
    body = b'{"messages":[{"role":"user","content":"hello"}],"max_tokens":1}'
    places: dict[str, Send] = {}
    for name in headers:

        def send(text: str, name: str = name) -> None:
            value = text.replace("\n", " ").encode()
            ask(connection, "POST", "/v1/chat/completions", body, {name: value})

        places[name] = send
    for path in (
        f"{MODELS}/",
        "/v1/responses/",
        "/",
        "/?",
    ):

        def look_up(text: str, path: str = path) -> None:
            quoted = "".join(f"%{byte:02x}" if byte < 33 or byte > 126 else chr(byte) for byte in text.encode()[:4096])
            ask(connection, "GET", path + quoted, b"", {})

        places[path] = look_up
    check(gateway, places, HEADER_BYTES, report, TEXTS)


def filled(message: Message, text: str) -> Iterator[tuple[str, Message]]:
    """Yield copies of a message with the text in one of its fields each, also in its messages."""
    descriptor: Any = message.DESCRIPTOR
    for field in descriptor.fields:
        copy = type(message)()
        copy.CopyFrom(message)
        if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            value = text if field.type == FieldDescriptor.TYPE_STRING else text.encode()
            if field.is_repeated:
                getattr(copy, field.name).append(value)
            else:
                setattr(copy, field.name, value)
            yield field.name, copy
        elif field.message_type is not None and not field.message_type.full_name.startswith("google."):
            if field.message_type.GetOptions().map_entry:
                continue
            inner = getattr(copy, field.name)
            part = inner.add() if field.is_repeated else inner
            kept = type(part)()
            kept.CopyFrom(part)
            for name, changed in filled(kept, text):
                part.CopyFrom(changed)
                whole = type(message)()
                whole.CopyFrom(copy)
                yield f"{field.name}.{name}", whole


def test_messages(gateway: Process, sizes: Sizes, report: Report) -> None:
    requests = {"Generate": inference_pb2.GenerateRequest, "EndInteraction": inference_pb2.EndInteractionRequest}
    size = min(sizes.crafted, MAX_REQUEST_BYTES) - ROOM
    with grpc.insecure_channel(gateway.address) as channel:
        places: dict[str, Send] = {}
        for method, kind in requests.items():
            call = channel.stream_stream(f"/fairlead.v1.Inference/{method}")
            for name, _ in filled(kind(), ""):

                def send(text: str, call: Any = call, kind: Any = kind, name: str = name) -> None:
                    data = dict(filled(kind(), text))[name].SerializeToString()
                    assert end_of(call(iter([data]), timeout=300)) in ENDS

                places[f"{method} {name}"] = send
        assert len(places) > 20
        check(gateway, places, size, report, TEXTS)
