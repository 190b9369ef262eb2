"""The newest calls of one client: where the time of each went. Prompts and outputs are not kept."""

from gateway.core.merge_patch import Document
from serving.telemetry.records import CallRecord, phases
from serving.telemetry.traces import Traces

MOST_TRACES = 50


def calls_of(traces: Traces, client: str) -> list[Document]:
    """Return the calls of the client's newest interactions, the newest interaction first; times are Unix seconds."""
    return [_described(call) for call in traces.of_client(client, MOST_TRACES)]


def calls_named(traces: Traces, name: str) -> list[Document]:
    """Return the calls of the interactions with the id `name`, and the calls with this id; see Traces.find."""
    return [_described(call) for call in traces.find(name)]


def _described(call: CallRecord) -> Document:
    return {
        "id": call.request_id,
        "client": call.client,
        "app": call.app,
        "interaction": call.interaction,
        "stage": call.stage,
        "worker": call.worker,
        "outcome": call.outcome.name.lower(),
        "prompt_tokens": call.prompt_tokens,
        "cached_tokens": call.cached_tokens,
        "output_tokens": call.output_tokens,
        "service": call.service,
        "retries": call.retries,
        "received": call.received / 1e9,
        "finished": call.finished / 1e9,
        "phases": [[phase.name, phase.start / 1e9, phase.end / 1e9] for phase in phases(call)],
    }
