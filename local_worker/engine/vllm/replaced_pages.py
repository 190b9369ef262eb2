"""Tables of pages that are sent again, to vLLM's model runner V2.

V1 takes the whole table of a resumed request in place of the one that it has. V2 appends it, so its tables are replaced
by a call of their own before the step.
"""

from collections.abc import Mapping
from typing import Any

from vllm.v1.core.sched.output import CachedRequestData


def take_replaced(known: CachedRequestData) -> dict[str, list[int]]:
    """Return the whole tables in `known`, by request, after removing them from it."""
    replaced: dict[str, list[int]] = {}
    for index, request in enumerate(known.req_ids):
        blocks = known.new_block_ids[index]
        if request in known.resumed_req_ids and blocks is not None:
            [replaced[request]] = blocks
            known.new_block_ids[index] = None
    return replaced


def replace_pages(worker: Any, replaced: Mapping[str, list[int]]) -> None:
    """Replace the tables of requests from the next step on; called in each of vLLM's processes."""
    runner = worker.model_runner
    for request, blocks in replaced.items():
        runner.block_tables.append_block_ids(runner.req_states.req_id_to_index[request], (blocks,), overwrite=True)
