"""The parts of vLLM's HTTP messages that the adapter uses; fields that it does not know are ignored."""

from typing import Annotated

import msgspec

from local_worker.core.batch import SampledLogprobs
from local_worker.core.request import Request
from serving.constraint import Constraint

LEAST_WRONG_SEED = 2**63  # ours have 64 bits, vLLM's are below this
TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class ModelCard(msgspec.Struct):
    """One model of `/v1/models`; an adapter of another model has a parent."""

    id: str
    root: str = ""
    parent: str | None = None
    max_model_len: int | None = None


class ModelList(msgspec.Struct):
    """The answer of `/v1/models` lists the engine's models."""

    data: list[ModelCard]


class VersionInfo(msgspec.Struct):
    """The answer of `/version` is that of vLLM."""

    version: str


class SchedulerSettings(msgspec.Struct):
    """The settings of the engine's scheduler that the adapter has to know."""

    long_prefill_token_threshold: int = 0


class EngineSettings(msgspec.Struct):
    """The engine's settings by their parts."""

    scheduler_config: SchedulerSettings | None = None


class ServerInfo(msgspec.Struct):
    """The answer of `/server_info`, which only engines in their development mode give; older ones give a text."""

    vllm_config: EngineSettings | str


class TokenizedText(msgspec.Struct):
    """The answer of `/tokenize` holds token ids."""

    tokens: list[TokenId]


class DetokenizedText(msgspec.Struct):
    """The answer of `/detokenize` holds a text."""

    prompt: str


class ErrorDetail(msgspec.Struct):
    """The text and the code of an error; the code is usually its HTTP status."""

    message: str = ""
    code: int | str | None = None


class ErrorAnswer(msgspec.Struct):
    """An error, which older versions do not wrap."""

    error: ErrorDetail | None = None
    message: str = ""


class ChoiceLogprobs(msgspec.Struct):
    """Log-probabilities of the new tokens; the keys of `top_logprobs` are `token_id:` and the id."""

    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(msgspec.Struct):
    """The output that is new in one event of a completion."""

    text: str = ""
    token_ids: list[TokenId] | None = None
    finish_reason: str | None = None
    logprobs: ChoiceLogprobs | None = None


class CompletionChunk(msgspec.Struct):
    """One event of a completion's stream."""

    choices: list[CompletionChoice] = []
    error: ErrorDetail | None = None


def completion_body(request: Request, model: str, *, hides_special: bool = True) -> bytes:
    """Return the body of `/v1/completions` that computes `request`; special tokens are hidden, or a part of the text.

    Stop strings are not in it, since they are found here. An engine has a generator per request, so a sampled output
    depends on the seed, but does not go on elsewhere as it would have gone on here.
    """
    sampling = request.sampling
    body: dict[str, object] = {
        "model": model,
        "prompt": request.tokens,
        "stream": True,
        "return_token_ids": True,
        "max_tokens": sampling.max_tokens,
        "min_tokens": sampling.min_tokens,
        "temperature": 0.0 if sampling.is_greedy else sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "seed": sampling.seed % LEAST_WRONG_SEED,
        "stop_token_ids": sampling.stop_token_ids,
        "ignore_eos": sampling.ignore_eos,
        # Both are vLLM's defaults for a text, not for a chat; our engine does the same.
        "skip_special_tokens": hides_special,
        "spaces_between_special_tokens": True,
    }
    if sampling.logprobs is not None:
        body |= {"logprobs": sampling.logprobs, "return_tokens_as_token_ids": True}
    if sampling.logit_bias:
        body["logit_bias"] = dict(sampling.logit_bias)
    if sampling.constraint is not None:
        body["structured_outputs"] = structured_outputs(sampling.constraint)
    return msgspec.json.encode(body | _cache_salt(request))


def prefix_body(request: Request, stop: int, model: str) -> bytes:
    """Return the body of `/v1/completions` that computes the first `stop` tokens of `request`, which are cached then.

    The one token that it has to generate is nobody's.
    """
    sampling: dict[str, object] = {"max_tokens": 1, "temperature": 0.0, "ignore_eos": True, "stream": True}
    return msgspec.json.encode({"model": model, "prompt": request.tokens[:stop]} | sampling | _cache_salt(request))


def _cache_salt(request: Request) -> dict[str, object]:
    return {"cache_salt": request.cache_scope} if request.cache_scope else {}


def structured_outputs(constraint: Constraint) -> dict[str, object]:
    match constraint.kind:
        case "json_object":
            return {"json_object": True}
        case "json_schema":
            return {"json": constraint.texts[0]}
        case "choice":
            return {"choice": constraint.texts}
        case "regex":
            return {"regex": constraint.texts[0]}
        case _:
            return {"grammar": constraint.texts[0]}


def sampled_logprobs(given: ChoiceLogprobs | None, tokens: list[int], wanted: int | None) -> list[SampledLogprobs]:
    """Return the log-probabilities of `tokens`, each with the `wanted` most likely tokens; empty if none are wanted.

    vLLM lists the sampled token among the likely ones even where it is not one of them.
    """
    if given is None or wanted is None:
        return []
    found = []
    for chosen, listed in zip(given.token_logprobs[: len(tokens)], given.top_logprobs, strict=False):
        top = [(int(name.removeprefix("token_id:")), value) for name, value in (listed or {}).items()]
        top.sort(key=lambda entry: -entry[1])
        found.append(SampledLogprobs(0.0 if chosen is None else chosen, tuple(top[:wanted])))
    return found
