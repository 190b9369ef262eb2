"""The service tiers of calls: which of them a caller gets of those that its key may have.

OpenAI's names are used on the wire. `flex` is the background class: such a call takes only what no interactive call
wants. All other tiers are the interactive class, `default`.
"""

from collections.abc import Collection

DEFAULT, FLEX = "default", "flex"
SERVICE_TIERS = (DEFAULT, FLEX)
HEADER = "x-fairlead-service-tier"  # over HTTP, of requests and answers


def granted(asked: str, allowed: Collection[str]) -> str:
    """Return the tier of a call that asks for `asked`, where its key may have `allowed`, of which there is one."""
    wanted = FLEX if asked == FLEX else DEFAULT
    return wanted if wanted in allowed else next(tier for tier in SERVICE_TIERS if tier in allowed)
