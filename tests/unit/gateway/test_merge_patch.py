"""Merge patches (RFC 7396): whoever applies all patches has the state."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.merge_patch import merge_patch
from tests.unit.gateway.merge_patches import apply

NAMES = st.sampled_from(["a", "b", "__proto__"])
VALUES = st.integers(0, 3) | st.booleans() | st.text(max_size=2) | st.lists(st.integers(0, 1), max_size=2)
DOCUMENTS = st.recursive(
    st.dictionaries(NAMES, VALUES), lambda inner: st.dictionaries(NAMES, VALUES | inner), max_leaves=8
)


@given(earlier=DOCUMENTS, later=DOCUMENTS)
def test_a_patch_leads_from_one_state_to_the_other(earlier: dict[str, Any], later: dict[str, Any]) -> None:
    patch = merge_patch(earlier, later)
    assert apply(earlier, patch) == later
    assert (patch == {}) == (earlier == later)


def test_only_what_changed_is_sent() -> None:
    earlier = {"clients": {"ann": {"waiting": 1, "share": 0.5}, "bob": {"waiting": 2}}}
    later = {"clients": {"ann": {"waiting": 3, "share": 0.5}}}
    assert merge_patch(earlier, later) == {"clients": {"ann": {"waiting": 3}, "bob": None}}


def test_an_object_that_becomes_empty_stays() -> None:
    assert apply({"clients": {"ann": {}}}, merge_patch({"clients": {"ann": {}}}, {"clients": {}})) == {"clients": {}}
    assert merge_patch({}, {"clients": {}}) == {"clients": {}}
