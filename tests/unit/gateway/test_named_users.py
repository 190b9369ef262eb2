"""NamedUsers against a plain list of all open calls."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fairlead.errors import ClientLimit
from gateway.core.named_users import NamedUsers


class Users(RuleBasedStateMachine):
    """Both are told the same."""

    @initialize(most=st.integers(1, 3))
    def begin(self, most: int) -> None:
        self.users = NamedUsers(most)
        self.calls: list[str] = []

    @rule(most=st.integers(1, 3))
    def reload(self, most: int) -> None:
        self.users.most = most

    @rule(user=st.sampled_from("abcd"))
    def enter(self, user: str) -> None:
        if len({*self.calls, user}) <= self.users.most or user in self.calls:
            self.users.enter(user)
            self.calls.append(user)
        else:
            with pytest.raises(
                ClientLimit, match=f"names {len({*self.calls})} other users .* max_users={self.users.most}"
            ):
                self.users.enter(user)

    @precondition(lambda self: self.calls)
    @rule(draw=st.data())
    def leave(self, draw: st.DataObject) -> None:
        user = draw.draw(st.sampled_from(self.calls))
        self.calls.remove(user)
        self.users.leave(user)

    @invariant()
    def agree(self) -> None:
        self.users.check_invariants()
        assert len(self.users) == len({*self.calls})


TestUsers = Users.TestCase
