"""SGLang's gRPC, which `python -m sglang.launch_server --smg-grpc-mode` serves."""

from typing import Any

import grpc

from engine_adapter.engine_api import CONSTRAINTS, EngineAway, EngineInfo
from engine_adapter.grpc_api import ANSWER_SECONDS
from engine_adapter.wire import sglang_pb2, sglang_pb2_grpc
from local_worker.core.request import Request
from serving.constraint import Constraint

ANY_OBJECT = '{"type": "object"}'  # the schema in place of a field that asks for any JSON object
PLAIN_WEIGHTS = ("", "default")  # the versions of weights that have not been replaced


class SglangGrpc:
    """See EngineDialect. The message has no cache salt and no seed, and no field for a choice of texts."""

    messages = sglang_pb2

    def stub(self, channel: grpc.aio.Channel) -> Any:
        """See EngineDialect."""
        return sglang_pb2_grpc.SglangSchedulerStub(channel)

    async def describe(self, stub: Any) -> EngineInfo:
        """See EngineDialect."""
        model = await stub.GetModelInfo(sglang_pb2.GetModelInfoRequest(), timeout=ANSWER_SECONDS)
        server = await stub.GetServerInfo(sglang_pb2.GetServerInfoRequest(), timeout=ANSWER_SECONDS)
        tokens, block_tokens = server.max_total_num_tokens, _count(server, "page_size") or 1
        if not (model.max_context_length and tokens >= block_tokens):
            raise EngineAway("the engine does not say which model and which KV cache it has")
        weights = "" if model.weight_version in PLAIN_WEIGHTS else f"-{model.weight_version}"
        return EngineInfo(
            model=model.served_model_name or model.model_path,
            root=f"{model.model_path}{weights}.sglang",
            engine=f"sglang {server.sglang_version}",
            max_model_tokens=model.max_context_length,
            block_tokens=block_tokens,
            pages=tokens // block_tokens,
            constraints=CONSTRAINTS - {"choice"},
            vocab_size=model.vocab_size or None,
            max_running=_count(server, "max_running_requests"),
            has_cache_scopes=False,
        )

    def generate_request(self, request: Request, request_id: str) -> sglang_pb2.GenerateRequest:
        """See EngineDialect. Stop strings are not in it, since they are found here."""
        sampling = request.sampling
        params = sglang_pb2.SamplingParams(
            temperature=0.0 if sampling.is_greedy else sampling.temperature,
            top_k=sampling.top_k or -1,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            max_new_tokens=sampling.max_tokens,
            min_new_tokens=sampling.min_tokens,
            stop_token_ids=sampling.stop_token_ids,
            ignore_eos=sampling.ignore_eos,
            no_stop_trim=True,
            n=1,
            logit_bias={str(token): bias for token, bias in sampling.logit_bias},
        )
        if sampling.constraint is not None:
            _constrain(params, sampling.constraint)
        return sglang_pb2.GenerateRequest(
            request_id=request_id,
            tokenized=sglang_pb2.TokenizedInput(input_ids=request.tokens),
            sampling_params=params,
            return_logprob=sampling.logprobs is not None,
            logprob_start_len=-1,
            top_logprobs_num=sampling.logprobs or 0,
            stream=True,
        )


def _count(server: sglang_pb2.GetServerInfoResponse, name: str) -> int | None:
    """Return the argument `name` of the server; None if it is not a number above 0."""
    value = dict(server.server_args.items()).get(name)
    return int(value) if isinstance(value, float) and value >= 1 else None


def _constrain(params: sglang_pb2.SamplingParams, constraint: Constraint) -> None:
    match constraint.kind:
        case "json_object":
            params.json_schema = ANY_OBJECT
        case "json_schema":
            params.json_schema = constraint.texts[0]
        case "regex":
            params.regex = constraint.texts[0]
        case _:
            params.ebnf_grammar = constraint.texts[0]
