"""What a caller receives beside others that split themselves."""

from global_scheduler.core.policies import DEFAULT_POLICY
from lab.bench.splitting import SCENES, measure


def test_a_user_of_many_calls_has_its_part_beside_many_users() -> None:
    """Places are scarce: calls that one credit lets in at once would lose theirs, and the user pay for them twice."""
    part, _ = measure(SCENES[1], 60.0, "user", workers=1, route=DEFAULT_POLICY)
    assert part >= 0.9 / 21, f"{part:.3f} of the service, beside 20 other users"
