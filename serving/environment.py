"""Environment variables that configure a service.

FAIRLEAD_<SERVICE>_<OPTION> sets an option of one service. FAIRLEAD_<OPTION> sets an option in SHARED for every service
that has it. All services may run with the same environment: each ignores the variables of the other services. Any other
variable that begins with FAIRLEAD_ is an error, so that a misspelled setting is not silently lost.
"""

import difflib
import re
from collections.abc import Collection, Mapping
from enum import StrEnum

PREFIX = "FAIRLEAD_"
# Options with the same meaning in every service that has them. FAIRLEAD_<SERVICE>_<OPTION> overrides FAIRLEAD_<OPTION>.
SHARED = (
    "secret",
    "accepted_secret",
    "admin_secret",
    "internal_tls",
    "scheduler",
    "redis",
    "cost",
    "log_level",
)
# Variables that the SDK, the `fairlead` command and the cache of the built-in model read.
BUTTONS = "FAIRLEAD_DEMO_BUTTONS"  # the Unix socket of the demo whose buttons the gateway's page shows
READ_ELSEWHERE = frozenset({"FAIRLEAD_API_KEY", "FAIRLEAD_CACHE", "FAIRLEAD_REFERENCE", "FAIRLEAD_TRACES", BUTTONS})
# Variables that Kubernetes sets in a container for a Service named `fairlead-...`, and Docker for such a link.
_LINK = re.compile(
    r"FAIRLEAD(_\w+)?_"
    r"(SERVICE_HOST=|SERVICE_PORT(_\w+)?=\d|PORT=\w+://|PORT_\d+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?=|NAME=/|ENV_\w+=)"
)


class ServiceName(StrEnum):
    """Names of the services, as they occur in the names of variables."""

    GATEWAY = "GATEWAY"
    SCHEDULER = "SCHEDULER"
    PICKER = "PICKER"
    WORKER = "WORKER"
    ADAPTER = "ADAPTER"
    THROTTLER = "THROTTLER"


def variable(service: ServiceName, option: str) -> str:
    """Return the variable that sets `option` of `service` and of no other service."""
    return f"{PREFIX}{service}_{option.upper()}"


def variables(service: ServiceName, options: Collection[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return, for each of `options`, the variable in `environ` that sets it; leave out options without a variable.

    Raise ValueError for variables with our prefix that have no meaning.
    """
    given = {name for name, text in environ.items() if name.startswith(PREFIX) and not _LINK.match(f"{name}={text}")}
    plain = {PREFIX + option.upper(): option for option in SHARED}
    own = {variable(service, option): option for option in options}
    others = tuple(variable(other, "") for other in ServiceName if other != service)
    known = READ_ELSEWHERE | plain.keys() | own.keys()
    unknown = sorted(name for name in given if name not in known and not name.startswith(others))
    if unknown:
        forms = [variable(each, "...") for each in ServiceName]
        raise ValueError(
            f"no such variable: {', '.join(_with_nearest(name, service, own, known) for name in unknown)}; "
            f"an option of one service is {', '.join(forms[:-1])} or {forms[-1]}"
        )
    return {
        option: name
        for names in (plain, own)  # the service's own variables come last: they override the plain ones
        for name, option in names.items()
        if name in given and option in options
    }


def _with_nearest(name: str, service: ServiceName, own: Mapping[str, str], known: Collection[str]) -> str:
    """Return the name of an unknown variable, followed by the most similar known one, if there is any."""
    # Options are also compared without the service: a common mistake is to leave out only the service's name.
    comparable = {option.upper(): own_name for own_name, option in own.items()}
    prefix = variable(service, "")
    if not name.startswith(prefix):
        prefix = PREFIX
        comparable |= {other.removeprefix(PREFIX): other for other in sorted(known)}
    close = difflib.get_close_matches(name.removeprefix(prefix), comparable, n=1)
    return f"{name} (nearest: {comparable[close[0]]})" if close else name
