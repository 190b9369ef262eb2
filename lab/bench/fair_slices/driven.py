"""A batcher that is driven without an engine: requests are made here, and every sample is the same token."""

from array import array
from collections.abc import Sequence

from local_worker.core.batch import StepResult
from local_worker.core.batcher import Batcher
from local_worker.core.plan import Plan
from local_worker.core.request import Request
from serving.sampling_params import SamplingParams
from simulation.prompts import digests_of

TOKEN = 1


def request_of(client: str, prompt: Sequence[int], output_tokens: int, arrival: int, block_tokens: int) -> Request:
    """Make a greedy request that generates exactly `output_tokens`."""
    ids = array("I", prompt)
    return Request(
        id=str(arrival),
        client=client,
        tokens=list(prompt),
        packed=ids.tobytes(),
        prompt_tokens=len(prompt),
        digests=digests_of(ids, block_tokens),
        chain_seed=1,
        sampling=SamplingParams(max_tokens=output_tokens, ignore_eos=True),
        arrival=arrival,
    )


def commit(batcher: Batcher, plan: Plan) -> None:
    """Commit `plan` with the samples that it asks for."""
    batcher.commit(plan, StepResult((TOKEN,) * sum(piece.samples for piece in plan.batch.slices)))
