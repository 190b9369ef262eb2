"""The throttles by the names that configuration uses.

`rpm` is the baseline that OIT is compared with, and what a contract about calls per minute means.
"""

from collections.abc import Callable

from throttler.core.oit import Oit
from throttler.core.profiles import Profiles
from throttler.core.quota import Quota
from throttler.core.rpm import Rpm
from throttler.core.throttle import Throttle
from throttler.core.unlimited import Unlimited

THROTTLES: dict[str, Callable[[Profiles, Quota], Throttle]] = {
    "oit": Oit,
    "rpm": Rpm,
    "none": lambda profiles, quota: Unlimited(),
}
