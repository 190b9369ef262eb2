import pytest
from hypothesis import given
from hypothesis import strategies as st

from throttler.core.closed_interactions import MOST, ClosedInteractions
from throttler.core.interaction_tokens import InteractionKey, TokenClaim, TokenSigner
from throttler.core.interactions import Close, Interactions
from throttler.core.profiles import AppProfile, Profiles, RateLimits

LIMITS = RateLimits(max_calls=3, idle_ttl=10.0, max_age=100.0)
KEY = InteractionKey("acme/ann", "agent", "i1")


def gateway(secret: str = "s", limits: RateLimits = LIMITS) -> Interactions:
    return Interactions(secret, Profiles(limits=limits))


def call(at: Interactions, token: bytes, start: float, end: float, *, last: bool = False) -> tuple[int, bytes]:
    """One whole call; returns its stage and the token for the next."""
    stage = at.admitted(KEY, token, start)
    next_token = at.token(KEY)
    at.finished(KEY, end=last, now=end)
    at.check_invariants()
    return stage, next_token


def test_opens_with_the_first_admitted_call_and_counts_stages() -> None:
    g = gateway()
    assert not g.continues(KEY, b"", 0.0)
    assert call(g, b"", 0.0, 1.0)[0] == 0
    assert g.continues(KEY, b"", 2.0)
    assert not g.continues(KEY._replace(client="acme/bob"), b"", 2.0)
    assert call(g, b"", 2.0, 3.0)[0] == 1


def test_any_gateway_continues_by_token_and_the_first_one_catches_up() -> None:
    a, b = gateway(), gateway()
    _, token = call(a, b"", 1000.0, 1001.0)
    assert b.continues(KEY, token, 1002.0)
    stage, token = call(b, token, 1002.0, 1003.0)
    assert stage == 1
    assert a.continues(KEY, token, 1012.0)  # also before its own record is swept
    assert [closed.reason for closed in a.expired(1012.0)] == [Close.IDLE]
    assert a.continues(KEY, token, 1012.0)  # it went on elsewhere
    assert call(a, token, 1012.0, 1013.0)[0] == 2


@pytest.mark.parametrize("in_flight", [0, 1], ids=["idle", "in flight"])
def test_a_token_ahead_of_a_gateways_own_record_counts(in_flight: int) -> None:
    limits = RateLimits(max_calls=4, idle_ttl=10.0, max_age=100.0)
    a, b = gateway(limits=limits), gateway(limits=limits)
    _, token = call(a, b"", 0.0, 0.0)
    for _ in range(in_flight):
        a.admitted(KEY, token, 0.0)
    for expected in (1, 2):
        stage, token = call(b, token, 1.0, 1.0)
        assert stage == expected
    assert a.admitted(KEY, token, 2.0) == 3, "three calls were admitted before, two of them elsewhere"
    for _ in range(in_flight):
        assert a.finished(KEY, end=False, now=2.0) is None
    closed = a.finished(KEY, end=False, now=2.0)
    assert closed is not None
    assert (closed.reason, closed.calls) == (Close.CALLS, 4)


@pytest.mark.parametrize("part", ["client", "app", "id"])
def test_a_token_of_another_interaction_protects_nothing(part: str) -> None:
    _, token = call(gateway(), b"", 0.0, 1.0)
    other = KEY._replace(**{part: "other"})
    fresh = gateway()
    assert fresh.continues(KEY, token, 1.0)
    assert not fresh.continues(other, token, 1.0)
    assert fresh.admitted(other, token, 1.0) == 0
    assert not gateway("another secret").continues(KEY, token, 1.0)


@given(st.binary(max_size=60), st.data())
def test_forged_tokens_do_not_verify(noise: bytes, data: st.DataObject) -> None:
    signer = TokenSigner("s")
    token = signer.sign(KEY, TokenClaim(12.5, 3))
    assert signer.verify(KEY, token) == TokenClaim(12.5, 3)
    assert signer.verify(KEY, noise) is None
    bit = data.draw(st.integers(0, len(token) * 8 - 1))
    flipped = bytearray(token)
    flipped[bit // 8] ^= 1 << bit % 8
    assert signer.verify(KEY, bytes(flipped)) is None
    assert signer.verify(KEY, token[:-1]) is None
    assert signer.verify(InteractionKey("acme/an", "nagent", "i1"), token) is None  # same letters, other borders


def test_a_token_of_the_accepted_secret_verifies_and_is_replaced_by_one_of_the_secret() -> None:
    old, both, new = TokenSigner("old"), TokenSigner("new", "old"), TokenSigner("new")
    token = old.sign(KEY, TokenClaim(12.5, 3))
    assert both.verify(KEY, token) == TokenClaim(12.5, 3)
    assert new.verify(KEY, token) is None
    assert new.verify(KEY, both.sign(KEY, TokenClaim(12.5, 4))) == TokenClaim(12.5, 4)
    assert TokenSigner("new", "").verify(KEY, token) is None


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="secret"):
        TokenSigner("")


def test_ends_when_told_and_its_token_is_worthless_then() -> None:
    g = gateway()
    _, token = call(g, b"", 0.0, 1.0)
    g.admitted(KEY, token, 2.0)
    closed = g.finished(KEY, end=True, now=3.0)
    assert closed is not None
    assert (closed.reason, closed.calls) == (Close.END, 2)
    assert not g.continues(KEY, token, 3.0)
    assert g.admitted(KEY, token, 3.0) == 0


def test_an_end_between_calls_counts_the_calls_of_the_gateways_own_record() -> None:
    g = gateway()
    call(g, b"", 0.0, 1.0)
    call(g, b"", 1.0, 2.0)
    closed = g.ended(KEY, b"", 3.0)
    assert closed is not None
    assert (closed.reason, closed.calls) == (Close.END, 2)


def test_gateways_whose_clocks_begin_at_other_times_agree_on_an_interactions_age() -> None:
    a, b = gateway(), gateway()
    a.synchronize(5000.0)
    b.synchronize(4000.0)
    _, token = call(a, b"", 0.0, 0.0)
    _, token = call(b, token, 1005.0, 1005.0)  # five seconds later, by Unix time
    assert a.continues(KEY, token, 99.0)
    assert not a.continues(KEY, token, 100.0), "it was opened 100 s ago, whatever gateway it went through"


def test_an_end_waits_for_the_other_calls_in_flight() -> None:
    g = gateway()
    g.admitted(KEY, b"", 0.0)
    g.admitted(KEY, b"", 0.0)
    assert g.finished(KEY, end=True, now=1.0) is None
    assert not g.continues(KEY, b"", 1.0)
    closed = g.finished(KEY, end=False, now=2.0)
    assert closed is not None
    assert closed.reason is Close.END


def test_idle_and_age_do_not_run_while_a_call_is_in_flight() -> None:
    g = gateway(limits=RateLimits(max_calls=3, idle_ttl=10.0, max_age=10_000.0))
    g.admitted(KEY, b"", 0.0)
    token = g.token(KEY)
    assert g.expired(5000.0) == []
    assert g.continues(KEY, b"", 5000.0)
    g.finished(KEY, end=False, now=5000.0)
    assert g.continues(KEY, b"", 5009.0)
    assert not g.continues(KEY, b"", 5010.0)
    assert not g.continues(KEY, token, 5010.0)  # its own token does not revive it, before or after the sweep
    assert [closed.reason for closed in g.expired(5010.0)] == [Close.IDLE]
    assert not g.continues(KEY, token, 5010.0)


def test_max_age_counts_the_time_between_calls() -> None:
    g = gateway(limits=RateLimits(max_calls=100, idle_ttl=60.0, max_age=100.0))
    call(g, b"", 0.0, 50.0)
    call(g, b"", 100.0, 150.0)  # 50 s in between
    assert g.continues(KEY, b"", 199.0)
    assert [closed.reason for closed in g.expired(200.0)] == [Close.AGE]


def test_max_calls_ends_it_here_and_by_token() -> None:
    g, token = gateway(), b""
    for number in range(3):
        assert g.continues(KEY, token, number) == (number > 0)
        stage, token = call(g, token, number, number)
        assert stage == number
    assert not g.continues(KEY, token, 3.0)
    assert not gateway().continues(KEY, token, 3.0)


def test_a_call_after_idleness_opens_a_new_one_and_the_old_one_is_still_reported() -> None:
    g = gateway()
    call(g, b"", 0.0, 1.0)
    assert g.admitted(KEY, b"", 50.0) == 0
    assert [(closed.reason, closed.calls) for closed in g.expired(50.0)] == [(Close.IDLE, 1)]
    g.check_invariants()


STEPS = st.lists(st.tuples(st.sampled_from(["admit", "finish", "end", "sweep"]), st.integers(0, 15)), max_size=60)


@given(STEPS)
def test_every_interaction_that_opens_closes_exactly_once(steps: list[tuple[str, int]]) -> None:
    g, now, opened, closed, in_flight = gateway(), 0.0, 0, 0, 0
    for step, pause in steps:
        now += pause
        if step == "admit":
            opened += g.admitted(KEY, b"", now) == 0
            in_flight += 1
        elif step == "sweep":
            closed += len(g.expired(now))
        elif in_flight:
            closed += g.finished(KEY, end=step == "end", now=now) is not None
            in_flight -= 1
        g.check_invariants()
    for _ in range(in_flight):
        closed += g.finished(KEY, end=False, now=now) is not None
    closed += len(g.expired(now + 1000))
    assert closed == opened


def test_max_calls_is_the_apps_own() -> None:
    g = Interactions("s", Profiles(limits=LIMITS, apps={"agent": AppProfile(per_minute=1, max_calls=2)}))
    _, token = call(g, b"", 0.0, 0.0)
    assert g.continues(KEY, token, 0.0)
    _, token = call(g, token, 0.0, 0.0)
    assert not g.continues(KEY, token, 0.0)
    assert g.continues(KEY._replace(app="other"), b"", 0.0) is False
    g.configure(Profiles(limits=LIMITS))
    assert call(g, b"", 0.0, 0.0)[0] == 0


def test_a_client_that_never_ends_its_interactions_keeps_only_the_newest() -> None:
    g = gateway(limits=RateLimits(max_interactions=2))
    keys = [KEY._replace(id=f"i{number}") for number in range(4)]
    for number, key in enumerate(keys):
        g.admitted(key, b"", number)
        g.finished(key, end=False, now=number)
        g.check_invariants()
    assert [g.continues(key, b"", 4.0) for key in keys] == [False, False, True, True]
    assert [(closed.key, closed.reason) for closed in g.expired(4.0)] == [(key, Close.CROWDED) for key in keys[:2]]


def test_closures_are_bounded_and_older_tokens_stay_worthless() -> None:
    g, tokens = gateway(), {}
    elsewhere = gateway()
    for number in range(MOST + 10):
        key = KEY._replace(id=f"i{number}")
        g.admitted(key, b"", 10.0 + number / 1000)
        tokens[key] = g.token(key)
        g.finished(key, end=True, now=10.0 + number / 1000)
        g.check_invariants()  # no more than MOST are remembered
    assert all(elsewhere.continues(key, token, 20.0) for key, token in tokens.items())
    assert not any(g.continues(key, token, 20.0) for key, token in tokens.items())
    fresh = KEY._replace(id="fresh")
    elsewhere.admitted(fresh, b"", 15.0)
    assert g.continues(fresh, elsewhere.token(fresh), 16.0), "what opened later is none of those"
    assert g.expired(200.0) == []
    g.check_invariants()


def test_of_interactions_that_closed_long_ago_no_token_says_more_than_its_microseconds() -> None:
    g = gateway()
    g.admitted(KEY, b"", 10.0000006)  # a token says 10.000001
    token = g.token(KEY)
    g.finished(KEY, end=True, now=10.0000006)
    for number in range(MOST):
        key = KEY._replace(id=f"later {number}")
        g.admitted(key, b"", 10.0000006)
        g.finished(key, end=True, now=10.0000006)
    assert not g.continues(KEY, token, 11.0)


def test_sweeping_looks_only_at_what_is_due() -> None:
    g = gateway(limits=RateLimits(idle_ttl=10.0, max_age=100.0))
    for number in range(100):
        key = KEY._replace(client=f"c{number}")
        g.admitted(key, b"", number)
        g.finished(key, end=False, now=number)
    assert [closed.key.client for closed in g.expired(50.0)] == [f"c{number}" for number in range(41)]
    g.check_invariants()


def test_the_next_stage_is_known_before_the_call_is_admitted() -> None:
    a, b = gateway(), gateway()
    assert a.next_stage(KEY, b"", 0.0) == 0
    a.admitted(KEY, b"", 0.0)
    token = a.token(KEY)
    assert a.next_stage(KEY, b"", 0.0) == 1, "while the first call is in flight"
    a.finished(KEY, end=False, now=1.0)
    assert a.next_stage(KEY, b"", 1.0) == 1
    assert b.next_stage(KEY, token, 1.0) == 1, "a token says it where the interaction is unknown"
    _, token = call(b, token, 1.0, 2.0)
    assert a.next_stage(KEY, token, 2.0) == 2, "a token may know of more calls than the gateway"
    assert a.next_stage(KEY, b"", 2.0) == 1, "nothing has changed"


def test_an_end_on_request_waits_for_the_call_in_flight() -> None:
    g = gateway()
    g.admitted(KEY, b"", 0.0)
    assert g.ended(KEY, b"", 1.0) is None
    assert not g.continues(KEY, b"", 1.0)
    closed = g.finished(KEY, end=False, now=2.0)
    assert closed is not None
    assert closed.reason is Close.END


def test_calls_that_take_no_time_do_not_make_an_interaction_younger() -> None:
    g = gateway(limits=RateLimits(max_calls=100, idle_ttl=60.0, max_age=100.0))
    for now in (0.0, 50.0, 99.0):
        call(g, b"", now, now)
    assert [closed.reason for closed in g.expired(100.0)] == [Close.AGE]


def test_a_sweep_keeps_the_deadline_of_an_interaction_when_a_later_one_goes_on() -> None:
    g = gateway()
    busy = KEY._replace(id="i2")
    call(g, b"", 0.0, 0.0)
    for now in (1.0, 2.0):
        g.admitted(busy, b"", now)
        if now == 1.0:
            g.finished(busy, end=False, now=now)
    assert g.expired(3.0) == []
    g.check_invariants()
    assert [closed.key for closed in g.expired(10.0)] == [KEY]


def test_an_id_can_be_used_again_when_the_tokens_of_its_last_interaction_have_expired() -> None:
    g, elsewhere = gateway(), gateway()
    _, token = call(g, b"", 0.0, 0.0)
    call(g, token, 0.0, 0.0, last=True)
    assert g.expired(100.0) == []
    _, token = call(elsewhere, b"", 100.0, 100.0)
    assert g.continues(KEY, token, 101.0), "its stage is lower, but it is another interaction"


def test_a_token_says_the_same_to_gateways_of_other_versions() -> None:
    g = gateway()
    g.admitted(KEY, b"", 12.5)
    token = g.token(KEY)
    assert TokenSigner("s").verify(KEY, token) == TokenClaim(12.5, 1)
    assert token.hex() == "0000000000bebc2000000001d9eb5b299b28a94d88e1353d492ca7a9295f19cf7ebc38b95ff4e6ba825d2212"


def test_closures_are_forgotten_when_their_tokens_have_expired() -> None:
    closures, last = ClosedInteractions(), TokenClaim(1.0, 2)
    closures.add(KEY, last, until=10.0)
    for now, outlived in ((9.0, False), (10.0, True)):
        closures.forget(now)
        assert closures.outlived_by(KEY, last) == outlived


def test_of_too_many_closures_the_oldest_is_forgotten() -> None:
    closures, other = ClosedInteractions(), KEY._replace(id="other")
    closures.add(KEY, TokenClaim(1.0, 1), until=100.0)
    for number in range(1, MOST):
        closures.add(KEY._replace(id=f"later {number}"), TokenClaim(1.0 + number, 1), until=100.0)
    assert closures.outlived_by(other, TokenClaim(1.0, 1)), "all are remembered one by one"
    closures.add(KEY, TokenClaim(1000.0, 1), until=100.0)  # opened and closed again: now it is the newest
    closures.add(KEY._replace(id="last"), TokenClaim(1001.0, 1), until=100.0)
    assert not closures.outlived_by(other, TokenClaim(2.0, 1))
    assert closures.outlived_by(other, TokenClaim(2.5, 1))
