"""What interaction tokens, interactions and cached prefixes give to those whom they do not belong to: nothing."""

import hashlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from fairlead.errors import ThrottledUser
from fairlead.rpc.status import from_call
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.services import SECRET, Process, Stack, eventually
from tests.system.attacks.report import Report
from throttler.core.interaction_tokens import InteractionKey, TokenClaim, TokenSigner

VICTIM, NEIGHBOUR, THIEF = "acme/ann", "acme/bob", "zeta/eve"
USER_PER_MINUTE, KAPPA, MAX_AGE = 1, 3, 3600.0
JOURNEY = "journey"


def request_for(text: str, max_tokens: int = 1) -> inference_pb2.GenerateRequest:
    sampling = common_pb2.SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    return inference_pb2.GenerateRequest(prompt=common_pb2.Prompt(text=text), sampling=sampling, app="desk")


def key_of(tenant: str) -> str:
    return f"sk-{tenant}-0123456789"


def identity(client: str) -> list[tuple[str, str]]:
    """The metadata of tenant/user."""
    tenant, _, user = client.partition("/")
    return [("authorization", f"Bearer {key_of(tenant)}"), ("x-fairlead-user", user)]


class Cluster:
    """Two tenants, whose keys name users, before one worker that serves one call at a time."""

    def __init__(self, stack: Stack, gateway: Process, stub: inference_pb2_grpc.InferenceStub) -> None:
        self._stack = stack
        self._gateway = gateway
        self._stub = stub
        self._fillers = itertools.count()

    def generate(self, client: str, request: inference_pb2.GenerateRequest) -> list[inference_pb2.GenerateResponse]:
        """All responses."""
        return list(self._stub.Generate(request, timeout=60, metadata=identity(client)))

    @property
    def log(self) -> str:
        """All that was ever logged, by anybody."""
        return "".join(process.log for process in (self._gateway, self._stack.scheduler, *self._stack.workers.values()))

    def opened(self, client: str) -> bytes:
        """The token of a journey that `client` has begun."""
        request = request_for("Where to?")
        request.interaction.id = JOURNEY
        return self.generate(client, request)[0].accepted.interaction_token

    def end(self, client: str, token: bytes) -> None:
        """Say that the client's journey is over."""
        interaction = inference_pb2.Interaction(id=JOURNEY, stage=1, token=token)
        request = inference_pb2.EndInteractionRequest(app="desk", interaction=interaction)
        self._stub.EndInteraction(request, timeout=60, metadata=identity(client))

    @contextmanager
    def overload(self) -> Iterator[None]:
        """Calls of others fill the worker and its queue for minutes, and end with the block."""
        calls = [
            self._stub.Generate(request_for("Fill", 4000), timeout=600, metadata=identity(f"acme/filler{number}"))
            for number in itertools.islice(self._fillers, 4)  # who have not called in the last minute
        ]
        eventually(lambda: self._is_overloaded() and self._stack.requests() == 4, "overload")
        yield
        for call in calls:
            call.cancel()
        eventually(lambda: not self._is_overloaded() and not self._stack.requests(), "no overload")

    def _is_overloaded(self) -> bool:
        changes = self._gateway.logged("overload changed")
        return bool(changes and changes[-1]["models"])

    def lets_in(self, client: str, app: str = "desk", **interaction: Any) -> bool:
        """Whether a call is let in under overload, where it waits behind others, or refused for its user's limit."""
        waiting = self._stack.requests()
        request = request_for("Let me in", 4)
        request.app = app
        if interaction:
            request.interaction.CopyFrom(inference_pb2.Interaction(**interaction))
        call = self._stub.Generate(request, timeout=60, metadata=identity(client))
        eventually(lambda: call.done() or self._stack.requests() > waiting, "let in or refused")
        if call.done():
            assert isinstance(from_call(call), ThrottledUser)
            return False
        call.cancel()
        eventually(lambda: self._stack.requests() == waiting, "it is gone")
        return True


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("thefts")
    keys, profiles = directory / "keys.yaml", directory / "profiles.yaml"
    profiles.write_text(f"limits: {{kappa: {KAPPA}, max_age: {MAX_AGE}}}\napps: {{desk: {{}}, notes: {{}}}}\n")
    entries = [
        f"  - {{hash: {hashlib.sha256(key_of(tenant).encode()).hexdigest()}, tenant: {tenant}, names_users: true, "
        "apps: [desk, notes]}\n"
        for tenant in ("acme", "zeta")
    ]
    keys.write_text("keys:\n" + "".join(entries))
    stack = Stack(directory, log_level="debug")
    stack.worker("a", engine="fake:0.05", max_running=1, log_level="debug")
    settings = {
        "keys": keys,
        "profiles": profiles,
        "throttle": f"oit:{USER_PER_MINUTE}",
        "log_level": "debug",
    }
    gateway = stack.start("gateway", scheduler=stack.addresses, **settings)
    gateway.wait_for("ready")
    with grpc.insecure_channel(gateway.address) as channel:
        yield Cluster(stack, gateway, inference_pb2_grpc.InferenceStub(channel))
    stack.close()


def signed(client: str, secret: str = SECRET, age: float = 0.0) -> bytes:
    """The token of a gateway for the journey of `client` that began `age` seconds ago."""
    return TokenSigner(secret).sign(InteractionKey(client, "desk", JOURNEY), TokenClaim(time.time() - age, 1))


def with_one_bit_changed(token: bytes) -> bytes:
    return token[:-1] + bytes([token[-1] ^ 1])


def of_a_later_stage(token: bytes) -> bytes:
    """What is signed says the stage in its bytes 8 to 11, the most significant first."""
    return token[:11] + b"\2" + token[12:]


FORGED: dict[str, Callable[[str], bytes]] = {
    "none": lambda _: b"",
    "invented": lambda _: bytes(44),
    "one bit changed": lambda client: with_one_bit_changed(signed(client)),
    "stage changed": lambda client: of_a_later_stage(signed(client)),
    "another secret's": lambda client: signed(client, secret="a secret of one's own making"),
    "another user's": lambda _: signed(NEIGHBOUR),
    "another tenant's": lambda _: signed("zeta/ann"),
    "expired": lambda client: signed(client, age=MAX_AGE + 1),
}


def test_tokens_that_no_gateway_made_for_the_caller(cluster: Cluster, report: Report) -> None:
    with cluster.overload():
        assert cluster.lets_in("acme/owner", id=JOURNEY, stage=1, token=signed("acme/owner")), "what a token is worth"
        assert cluster.lets_in("acme/owner", id=JOURNEY, stage=1, token=signed("acme/owner")), "beyond the limit"
        let_in = {}
        for number, (kind, forge) in enumerate(FORGED.items()):
            client = f"acme/forger{number}"
            assert cluster.lets_in(client), "the one call that everybody has in a minute"
            let_in[kind] = cluster.lets_in(client, id=JOURNEY, stage=1, token=forge(client))
    assert let_in == dict.fromkeys(FORGED, False)
    report.add("forged, foreign and expired tokens", Counter({"refused": len(let_in)}))


def test_a_stolen_token_serves_nobody_else_and_nothing_else(cluster: Cluster, report: Report) -> None:
    token = cluster.opened(VICTIM)
    with cluster.overload():
        for thief in (NEIGHBOUR, THIEF):
            assert cluster.lets_in(thief), "the one call that everybody has"
            assert not cluster.lets_in(thief, id=JOURNEY, stage=1, token=token)
        assert not cluster.lets_in(VICTIM, id="another journey", stage=1, token=token)
        assert not cluster.lets_in(VICTIM, app="notes", id=JOURNEY, stage=1, token=token)
        assert cluster.lets_in(VICTIM, id=JOURNEY, stage=1, token=token), "it still serves its owner"
    report.add("stolen tokens, for another user, tenant, app or interaction", Counter({"refused": 4}))


def test_nobody_ends_the_interactions_of_others(cluster: Cluster, report: Report) -> None:
    token = cluster.opened("acme/traveller")
    for stranger in (NEIGHBOUR, THIEF):
        for stolen in (token, b""):
            cluster.end(stranger, stolen)
    with cluster.overload():
        assert cluster.lets_in("acme/traveller", id=JOURNEY, stage=1, token=token)
    report.add("EndInteraction of others' interactions", Counter({"ended nothing": 4}))


def test_a_token_is_worth_nothing_after_the_end(cluster: Cluster, report: Report) -> None:
    token = cluster.opened("acme/returner")
    cluster.end("acme/returner", token)
    with cluster.overload():
        assert not cluster.lets_in("acme/returner", id=JOURNEY, stage=1, token=token)
    report.add("tokens replayed after the end", Counter({"refused": 1}))


def test_replays_gain_no_more_than_the_cap(cluster: Cluster, report: Report) -> None:
    token = cluster.opened("acme/replayer")
    with cluster.overload():
        ends = Counter(
            "let in" if cluster.lets_in("acme/replayer", id=JOURNEY, stage=1, token=token) else "refused"
            for _ in range(2 * KAPPA)
        )
    assert ends["let in"] == KAPPA * USER_PER_MINUTE
    report.add("one token replayed (cap: 3 protected calls a minute)", ends)


def test_invented_interactions_protect_nothing(cluster: Cluster, report: Report) -> None:
    with cluster.overload():
        ends = Counter("let in" if cluster.lets_in("zeta/inventor", id=f"{n}") else "refused" for n in range(4))
    assert ends["let in"] == USER_PER_MINUTE
    report.add("invented interaction ids (limit: 1 call a minute)", ends)


def test_no_log_tells_prompts_outputs_or_keys(cluster: Cluster) -> None:
    secret = "marmalade"  # digits could also be part of a time, an id or a count
    prompt = f"The safe opens with {secret}."
    responses = cluster.generate(VICTIM, request_for(prompt, 20))
    output = "".join(response.chunk.text for response in responses)
    bad = inference_pb2.GenerateRequest(
        prompt=common_pb2.Prompt(chat=common_pb2.Chat(messages=[common_pb2.ChatMessage(role=prompt, content=prompt)]))
    )
    with pytest.raises(grpc.RpcError, match="role"):
        cluster.generate(VICTIM, bad)
    with pytest.raises(grpc.RpcError, match="key"):
        cluster.generate(f"{secret}/eve", request_for(prompt))
    assert responses[0].accepted.request_id in cluster.log, "calls are logged"
    for word in (secret, output[:20], json.dumps(output[:20])[1:-1], key_of("acme"), SECRET):
        assert word not in cluster.log


def test_a_prompt_cannot_be_guessed_across_tenants(cluster: Cluster, report: Report) -> None:
    secret = "The password of the vault is swordfish, and nobody outside of this office may know. " * 4
    for _ in range(2):
        usage = cluster.generate(VICTIM, request_for(secret))[-1].finished.usage
    assert usage.cached_tokens > 0, "its owner's second call"
    guess, other = (
        cluster.generate(f"zeta/guesser{number}", request_for(text))[-1].finished.usage
        for number, text in enumerate((secret, secret.upper()))
    )
    assert guess.cached_tokens == other.cached_tokens == 0
    assert guess.service == other.service
    report.add("another tenant's prompt, guessed", Counter({"cached tokens 0": 1}))
