"""The connections and the unread bytes of a listener are bounded, and the address that takes most gives way."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.connection_table import ConnectionTable

MOST, MOST_HELD = 6, 20
ADDRESSES = ("a", "b", "c")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "remove", "use", "rest", "known", "hold"]),
        st.integers(0, 9),
        st.sampled_from(ADDRESSES),
        st.integers(0, 12),
    ),
    max_size=60,
)


class Model:
    """What is known of each connection, in the order of its last change."""

    def __init__(self) -> None:
        self.address: dict[int, str] = {}
        self.idle: dict[int, bool] = {}  # whether it is known; those that became idle first come first
        self.held: dict[int, int] = {}


def is_largest(model: Model, numbers: Counter[str], victim: int, among: list[int]) -> bool:
    """Whether `victim` is the oldest of an address that has as much as any."""
    own = [each for each in among if model.address[each] == model.address[victim]]
    most = max(numbers[model.address[each]] for each in among)
    return own[0] == victim and numbers[model.address[victim]] == most


def check_added(model: Model, number: int, victim: int | None) -> None:
    if len(model.address) <= MOST:
        assert victim is None
        return
    strangers = [each for each, is_known in model.idle.items() if not is_known and each != number]
    guests = [each for each, is_known in model.idle.items() if is_known]
    among = strangers or guests
    if among:
        assert victim is not None
        assert is_largest(model, Counter(model.address.values()), victim, among)
        del model.idle[victim]
    else:
        assert victim == number
        model.idle.pop(number)


def check_held(model: Model, victims: list[int]) -> None:
    for victim in victims:
        numbers: Counter[str] = Counter()
        for each, size in model.held.items():
            numbers[model.address[each]] += size
        assert numbers.total() > MOST_HELD, "no more than necessary"
        assert is_largest(model, numbers, victim, list(model.held))
        del model.held[victim]
    assert sum(model.held.values()) <= MOST_HELD


@given(STEPS)
def test_bounds_hold_and_the_largest_gives_way(steps: list[tuple[str, int, str, int]]) -> None:
    table: ConnectionTable[int] = ConnectionTable(MOST, MOST_HELD)
    model, known = Model(), set[int]()
    for act, number, address, size in steps:
        if act == "add" and number not in model.address:
            model.address[number], model.idle[number] = address, False
            check_added(model, number, table.add(number, address))
        elif number not in model.address:
            continue
        elif act == "remove":
            table.remove(number)
            for of in (model.address, model.idle, model.held):
                of.pop(number, None)
            known.discard(number)
        elif act == "use":
            table.use(number)
            model.idle.pop(number, None)
        elif act in ("rest", "known"):
            known |= {number} if act == "known" else set()
            table.rest(number, is_known=act == "known")
            model.idle.pop(number, None)
            model.idle[number] = number in known
        elif act == "hold":
            if not size:
                model.held.pop(number, None)
            else:
                model.held[number] = size
            check_held(model, table.hold(number, size))
        table.check_invariants()


def test_each_that_has_to_give_way_is_named() -> None:
    table: ConnectionTable[int] = ConnectionTable(MOST, MOST_HELD)
    for number in (0, 1, 2):
        table.add(number, "a")
    assert table.hold(0, 1) == []
    assert table.hold(1, 11) == []
    assert table.hold(2, 10) == [0, 1], "the first frees too little"


def test_one_address_keeps_no_other_out() -> None:
    table: ConnectionTable[str] = ConnectionTable(100, 1)
    for number in range(100):
        assert table.add(f"flood {number}", "flood") is None
    assert table.add("honest", "elsewhere") == "flood 0"
    table.rest("honest", is_known=True)
    for number in range(100, 200):
        assert table.add(f"flood {number}", "flood") == f"flood {number - 99}", "its own oldest"
    table.check_invariants()


def test_a_connection_that_has_once_shown_a_key_goes_after_all_that_have_not() -> None:
    table: ConnectionTable[str] = ConnectionTable(2, MOST_HELD)
    table.add("known", "a")
    table.rest("known", is_known=True)
    table.use("known")
    table.rest("known", is_known=False)
    table.add("stranger", "a")
    assert table.add("new", "b") == "stranger"
    table.remove("stranger")
    table.rest("new", is_known=True)
    assert table.add("newer", "b") == "new", "of the known ones the one at the address with most connections"
    table.check_invariants()


def test_a_connection_that_is_gone_holds_nothing() -> None:
    table: ConnectionTable[str] = ConnectionTable(MOST, MOST_HELD)
    for connection, address in (("gone", "a"), ("here", "a"), ("large", "b")):
        table.add(connection, address)
    table.hold("gone", 10)
    table.hold("here", 5)
    table.remove("gone")
    table.check_invariants()
    assert table.hold("large", 16) == ["large"]
