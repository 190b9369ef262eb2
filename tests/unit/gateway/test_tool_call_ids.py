"""Ids of tool calls against a list of all that were made."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.continued_chats import LENGTH, LOOKED_AT, NAME, ToolCallIds
from serving.names import MAX_NAME

SECRET, FORMER = "a secret of the cluster", "the one before"
IDS = ToolCallIds(SECRET)
CLIENTS = ("acme", "acme/ann", "acme/bob")
REQUESTS = ("0123456789abcdef", "89abcdef01234567", "fedcba9876543210")
FOREIGN = (
    "",
    "call_0",
    "toolu_01A09q90qw90lq917835lq9",
    "012345600",
    "zzzzzzzzz",
    "ABCDEFGHI",
    "chatcmpl-tool-1",
    "é" * 9,
)

# Few enough that a wrong signature is not right by chance: either always, or never.
PLACES = (0, 1, 4095)
MADE = {
    (client, IDS.make(client, IDS.begun_by(root), request, place)): IDS.begun_by(root)
    for client in CLIENTS
    for root in REQUESTS
    for request in REQUESTS
    for place in PLACES
}


def naive(client: str, newest_first: list[str]) -> str:
    """The interaction of the first id that was made for the client."""
    return next((MADE[client, each] for each in newest_first if (client, each) in MADE), "")


def test_ids_differ_and_every_template_takes_them() -> None:
    made = [each for _, each in MADE]
    assert len(set(made)) == len(CLIENTS) * len(REQUESTS) ** 2 * len(PLACES)
    assert all(len(each) == LENGTH and each.isascii() and each.isalnum() for each in made)


@given(
    st.sampled_from(CLIENTS),
    st.lists(st.sampled_from([*FOREIGN, *(made for _, made in MADE)]), max_size=LOOKED_AT),
)
def test_the_newest_own_id_names_the_interaction(client: str, newest_first: list[str]) -> None:
    assert IDS.continued_by(client, newest_first) == naive(client, newest_first)


@given(st.sampled_from(CLIENTS), st.text(max_size=12))
def test_a_call_of_a_named_interaction_has_an_id_too(client: str, session: str) -> None:
    made = IDS.make(client, session, REQUESTS[0], 0)
    assert NAME.fullmatch(IDS.continued_by(client, [made]))
    assert len(IDS.begun_by(REQUESTS[0])) < MAX_NAME


def test_no_more_ids_than_promised_are_looked_at() -> None:
    made = IDS.make("acme", IDS.begun_by(REQUESTS[0]), REQUESTS[0], 0)
    assert IDS.continued_by("acme", [*["call_0"] * (LOOKED_AT - 1), made])
    assert not IDS.continued_by("acme", [*["call_0"] * LOOKED_AT, made])


def test_guesses_are_seldom_right_and_those_of_another_cluster_too() -> None:
    other = ToolCallIds("another cluster's secret")
    made = [other.make("acme", "", f"{number:016x}", 0) for number in range(10_000)]
    taken = sum(bool(IDS.continued_by("acme", [each])) for each in made)
    assert taken < 20, "2.4 are to be expected"


def test_a_secret_that_is_still_accepted_signs_ids_that_are_known() -> None:
    rotated = ToolCallIds(SECRET, FORMER)
    before = ToolCallIds(FORMER)
    assert rotated.continued_by("acme", [before.make("acme", before.begun_by("x"), "x", 0)]) == before.begun_by("x")
    made = rotated.make("acme", rotated.begun_by("x"), "x", 0)
    assert made == IDS.make("acme", IDS.begun_by("x"), "x", 0)
