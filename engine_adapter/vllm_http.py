"""vLLM's HTTP interface as an adapter's engine, which tokenizes and decodes."""

import asyncio
from functools import partial

from engine_adapter.engine_api import EngineInfo, FollowerFactory, OpenEngine
from engine_adapter.output_stream import OutputStream
from engine_adapter.tokenizer import EngineTokenizer
from engine_adapter.vllm_api import VllmApi
from local_worker.core.engine_text import EngineText
from local_worker.core.request import Request
from serving.http_client import HttpClient


class VllmHttp(VllmApi):
    """See EngineApi. `make_follower` follows the events that the engine publishes beside its HTTP."""

    def __init__(self, client: HttpClient, make_follower: FollowerFactory | None) -> None:
        super().__init__(client)
        self._make_follower = make_follower

    async def open(self, info: EngineInfo) -> OpenEngine:
        """See EngineApi."""

        def make_output(request: Request) -> OutputStream:
            text = EngineText(request.sampling.stop, request.sampling.min_tokens)
            return OutputStream(self, request, text, info.model)

        tokenizer = EngineTokenizer(self, info.model, asyncio.get_running_loop())
        compute_prefix = partial(self.compute_prefix, model=info.model) if info.caches_prefixes else None
        return OpenEngine(info, tokenizer, make_output, self._make_follower, compute_prefix)
