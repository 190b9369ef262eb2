"""The throttles by their names in the configuration.

`rpm` is the baseline of comparisons with OIT; it also implements a contract about calls per minute.
"""

from collections.abc import Callable

from throttler.core.oit import Oit
from throttler.core.profiles import Profiles
from throttler.core.quota import Quota
from throttler.core.rpm import Rpm
from throttler.core.throttle import Throttle
from throttler.core.unlimited import Unlimited

THROTTLES: dict[str, Callable[[Profiles, Quota, float], Throttle]] = {
    "oit": Oit,
    "rpm": Rpm,
    "none": lambda profiles, quota, seconds: Unlimited(),
}
