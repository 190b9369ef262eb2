"""Expected output lengths against a record of every output."""

from hypothesis import given
from hypothesis import strategies as st

from local_worker.core.policies.vtc_predict import LAST_OUTPUTS, OutputLengths


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=30), st.integers(1, 3))
def test_the_last_five_outputs_count_of_clients_whose_outputs_ended_last(
    outputs: list[tuple[str, int]], most: int
) -> None:
    lengths = OutputLengths(most)
    known: dict[str, list[int]] = {}  # the client whose output ended last comes last
    for client, tokens in outputs:
        lengths.ended(client, tokens)
        known[client] = [*known.pop(client, []), tokens]
        known = dict(list(known.items())[-most:])
        expected = {name: sum(last := known[name][-LAST_OUTPUTS:]) // len(last) for name in known}
        assert {name: lengths.expected(name) for name in "abc"} == {name: expected.get(name) for name in "abc"}
