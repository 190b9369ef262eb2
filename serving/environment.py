"""Which environment variables configure a service.

FAIRLEAD_<SERVICE>_<OPTION> sets an option of one service, FAIRLEAD_<OPTION> one of SHARED in every service that has it.
All services may be given one environment: each leaves the variables of the others to them. Whatever else begins with
FAIRLEAD_ is refused, so that no setting is lost to a wrong name.
"""

import difflib
import re
from collections.abc import Collection, Mapping
from enum import StrEnum

PREFIX = "FAIRLEAD_"
# Options that mean the same in every service that has them. A service's own variable wins over the plain one.
SHARED = (
    "secret",
    "admin_secret",
    "internal_certificate",
    "internal_key",
    "internal_authority",
    "scheduler",
    "redis",
    "redis_password",
    "redis_ca",
    "cost",
    "log_level",
)
# Read by the SDK, by the `fairlead` command and by the built-in model's cache.
READ_ELSEWHERE = frozenset({"FAIRLEAD_API_KEY", "FAIRLEAD_CACHE", "FAIRLEAD_REFERENCE", "FAIRLEAD_TRACES"})
# What Kubernetes and Docker put into a container's environment for a Service, or a link, whose name is `fairlead-...`.
_LINK = re.compile(
    r"FAIRLEAD(_\w+)?_"
    r"(SERVICE_HOST=|SERVICE_PORT(_\w+)?=\d|PORT=\w+://|PORT_\d+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?=|NAME=/|ENV_\w+=)"
)


class ServiceName(StrEnum):
    """The services, as the names of variables have them."""

    GATEWAY = "GATEWAY"
    SCHEDULER = "SCHEDULER"
    WORKER = "WORKER"


def variable(service: ServiceName, option: str) -> str:
    """The variable that sets `option` of `service` and of no other."""
    return f"{PREFIX}{service}_{option.upper()}"


def variables(service: ServiceName, options: Collection[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variable in `environ` that sets each of `options`; options that none sets are left out.

    Raises ValueError for variables that nobody reads.
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
        for names in (plain, own)  # the service's own last: it wins
        for name, option in names.items()
        if name in given and option in options
    }


def _with_nearest(name: str, service: ServiceName, own: Mapping[str, str], known: Collection[str]) -> str:
    """The name of an unknown variable, with the known one that it resembles most, if there is any."""
    # The option alone is compared, too: a plain name of an option that is not shared misses only the service.
    comparable = {option.upper(): own_name for own_name, option in own.items()}
    prefix = variable(service, "")
    if not name.startswith(prefix):
        prefix = PREFIX
        comparable |= {other.removeprefix(PREFIX): other for other in sorted(known)}
    close = difflib.get_close_matches(name.removeprefix(prefix), comparable, n=1)
    return f"{name} (nearest: {comparable[close[0]]})" if close else name
