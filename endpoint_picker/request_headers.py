"""What a request's headers and metadata say of it: whose it is, how much it weighs, and where it may go."""

from collections.abc import Mapping

from fairlead.errors import InvalidRequest
from serving.cost import WEIGHT_ONE
from serving.envoy import ext_proc_pb2
from serving.names import normalized
from serving.service_tiers import FLEX
from serving.service_tiers import HEADER as TIER

DESTINATION = "x-gateway-destination-endpoint"
SUBSET_NAMESPACE, SUBSET = "envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset"
SERVED_NAMESPACE, SERVED = "envoy.lb", "x-gateway-destination-endpoint-served"
# The first header that a request has names its client.
CLIENT_HEADERS = (
    "x-fairlead-user",
    "x-llm-d-inference-fairness-id",
    "x-gateway-inference-fairness-id",
    "x-fairlead-app",
)
OBJECTIVE_HEADERS = ("x-llm-d-inference-objective", "x-gateway-inference-objective")
NOBODY = "default"
MOST_DIGITS = 15


def headers_of(message: ext_proc_pb2.HttpHeaders) -> dict[str, str]:
    """Return the headers by name, which HTTP/2 spells in lower case; bytes that are not UTF-8 are replaced."""
    return {each.key: each.raw_value.decode(errors="replace") or each.value for each in message.headers.headers}


def client_of(headers: Mapping[str, str]) -> str:
    """Return the client whose request it is; raises InvalidRequest for a name that is none."""
    for name in CLIENT_HEADERS:
        if headers.get(name):
            try:
                return normalized(headers[name])
            except ValueError as error:
                raise InvalidRequest(str(error), name) from error
    return NOBODY


def asked_class(headers: Mapping[str, str]) -> bool | None:
    """Return whether the headers ask for the background class; None where they say nothing, and the body counts."""
    return headers[TIER] == FLEX if headers.get(TIER) else None


def weight_of(headers: Mapping[str, str], objectives: Mapping[str, int]) -> int:
    """Return the weight, in thousandths, of the objective that the headers name; an unknown objective weighs 1."""
    named = next((headers[name] for name in OBJECTIVE_HEADERS if name in headers), "")
    return objectives.get(named, WEIGHT_ONE)


def number_of(headers: Mapping[str, str], name: str) -> int | None:
    """Return a number of at most MOST_DIGITS digits; None where the header is missing or is no such number."""
    text = headers.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else None


def subset_of(metadata: ext_proc_pb2.Metadata) -> set[str] | None:
    """Return the endpoints to which a proxy limits the choice; None where it does not."""
    hint = metadata.filter_metadata[SUBSET_NAMESPACE].fields if SUBSET_NAMESPACE in metadata.filter_metadata else {}
    if SUBSET not in hint:
        return None
    value = hint[SUBSET]
    named = [each.string_value for each in value.list_value.values] or value.string_value.split(",")
    return {address.strip() for address in named if address.strip()}


def served_of(metadata: ext_proc_pb2.Metadata) -> str:
    """Return the endpoint that served, as the proxy says with the answer; empty where it says nothing."""
    if SERVED_NAMESPACE not in metadata.filter_metadata:
        return ""
    return metadata.filter_metadata[SERVED_NAMESPACE].fields[SERVED].string_value
