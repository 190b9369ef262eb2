"""vLLM's own gRPC, which `vllm serve --grpc` serves."""

from typing import Any

import grpc

from engine_adapter.engine_api import CONSTRAINTS, EngineAway, EngineInfo
from engine_adapter.grpc_api import ANSWER_SECONDS
from engine_adapter.wire import vllm_pb2, vllm_pb2_grpc
from local_worker.core.request import Request
from serving.constraint import Constraint

LEAST_WRONG_SEED = 2**31  # ours have 64 bits, those of the message are below this


class VllmGrpc:
    """See EngineDialect. The message has no cache salt, so all requests share cached prefixes."""

    messages = vllm_pb2

    def stub(self, channel: grpc.aio.Channel) -> Any:
        """See EngineDialect."""
        return vllm_pb2_grpc.VllmEngineStub(channel)

    async def describe(self, stub: Any) -> EngineInfo:
        """See EngineDialect."""
        model = await stub.GetModelInfo(vllm_pb2.GetModelInfoRequest(), timeout=ANSWER_SECONDS)
        server = await stub.GetServerInfo(vllm_pb2.GetServerInfoRequest(), timeout=ANSWER_SECONDS)
        loads = await stub.GetLoads(vllm_pb2.GetLoadsRequest(), timeout=ANSWER_SECONDS)
        tokens = loads.loads[0].max_total_num_tokens if loads.loads else 0
        if not (model.max_context_length and server.block_size and tokens):
            raise EngineAway("the engine does not say which model and which KV cache it has")
        return EngineInfo(
            model=model.served_model_name or model.model_path,
            root=model.model_path,
            engine=f"vllm {loads.version}",
            max_model_tokens=model.max_context_length,
            block_tokens=server.block_size,
            pages=tokens // server.block_size - 1,  # one block is vLLM's null block, which no request gets
            constraints=CONSTRAINTS,
            vocab_size=model.vocab_size or None,
            max_running=server.max_num_seqs or None,
            has_cache_scopes=False,
        )

    def generate_request(self, request: Request, request_id: str) -> vllm_pb2.GenerateRequest:
        """See EngineDialect. Stop strings are not in it, since they are found here."""
        sampling = request.sampling
        params = vllm_pb2.SamplingParams(
            temperature=0.0 if sampling.is_greedy else sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            max_tokens=sampling.max_tokens,
            min_tokens=sampling.min_tokens,
            stop_token_ids=sampling.stop_token_ids,
            ignore_eos=sampling.ignore_eos,
            logprobs=sampling.logprobs,
            seed=sampling.seed % LEAST_WRONG_SEED,
            logit_bias=dict(sampling.logit_bias),
        )
        if sampling.constraint is not None:
            _constrain(params, sampling.constraint)
        tokens = vllm_pb2.TokenizedInput(input_ids=request.tokens)
        return vllm_pb2.GenerateRequest(request_id=request_id, tokenized=tokens, sampling_params=params, stream=True)


def _constrain(params: vllm_pb2.SamplingParams, constraint: Constraint) -> None:
    match constraint.kind:
        case "json_object":
            params.json_object = True
        case "choice":
            params.choice.choices.extend(constraint.texts)
        case "json_schema":
            params.json_schema = constraint.texts[0]
        case "regex":
            params.regex = constraint.texts[0]
        case _:
            params.grammar = constraint.texts[0]
