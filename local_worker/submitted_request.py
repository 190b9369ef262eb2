"""The core's record of a request that a gateway has submitted."""

from fairlead.errors import InvalidRequest
from local_worker.attempt import Submission
from local_worker.core.request import Request
from local_worker.prompt_encoder import PromptEncoder
from serving.blocks import unpack_digests
from serving.cost import MAX_WEIGHT, weight_thousandths

MAX_SCORES = 65_536  # log-probabilities of a prompt, which leave in one message


def submitted_request(prompts: PromptEncoder, submission: Submission, arrival: int, now: float) -> Request:
    """Return the request of `submission`, the `arrival`-th of this worker, at `now` (seconds).

    Raises InvalidRequest for values that a gateway must not send, Unavailable for a model that is not served here.
    """
    model = prompts.model(submission.model)
    ids = prompts.check_ids(submission.token_ids, "token_ids")
    if submission.generated_tokens >= len(ids):
        raise InvalidRequest(
            f"must be below the number of token ids, {len(ids)}; got {submission.generated_tokens}", "generated_tokens"
        )
    for field, weight in (("weight", submission.weight), ("user_weight", submission.user_weight)):
        if not 0 < weight <= MAX_WEIGHT:
            raise InvalidRequest(f"must be above 0 and at most {MAX_WEIGHT}, got {weight}", field)
    if submission.public_tokens > len(ids):
        raise InvalidRequest(
            f"must be at most the number of token ids, {len(ids)}; got {submission.public_tokens}", "public_tokens"
        )
    scored = submission.sampling.prompt_logprobs
    if scored is not None and len(ids) * (1 + scored) > MAX_SCORES:
        raise InvalidRequest(
            f"at most {MAX_SCORES} values are reported, got {len(ids)} tokens with {scored} alternatives each",
            "sampling.prompt_logprobs",
        )
    chain = prompts.chain(submission.token_ids, model, submission.cache_scope, submission.public_tokens)
    return Request(
        id=submission.request_id,
        client=submission.client,
        model=model,
        tokens=ids,
        prompt_tokens=len(ids),
        digests=list(unpack_digests(chain.digests)),
        chain_seed=chain.seed,
        public_blocks=chain.public_blocks,
        sampling=submission.sampling,
        arrival=arrival,
        system_tokens=submission.system_tokens,
        weight=weight_thousandths(submission.weight),
        user_weight=weight_thousandths(submission.user_weight),
        interaction=submission.interaction,
        seed_position=submission.generated_tokens,
        in_interaction=submission.in_interaction,
        paid=submission.charged,
        deadline=None if submission.timeout_seconds is None else now + submission.timeout_seconds,
    )
