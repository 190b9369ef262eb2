"""The loop of the served engine."""

import argparse
import asyncio
from typing import Any

from tests.fakes.served_engine.kv import KvCache, Publisher
from tests.fakes.served_engine.running import Running
from tests.fakes.served_engine.tokens import EOS, REPLACEMENT, next_token, text_of


class ServedEngine:
    """First come, first served; each step computes at most `budget` tokens.

    Of one prompt it computes at most `long_prefill_token_threshold` tokens, if there is another request, as vLLM does.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.cache = KvCache(options.blocks - 1, options.block)
        self.waiting: list[Running] = []
        self.running: list[Running] = []
        self.most_running = self.requests = self.computed_tokens = 0
        self.work = asyncio.Event()

    async def run(self, publisher: Publisher | None) -> None:
        while True:
            await self.work.wait()
            self.step()
            if publisher is not None and self.cache.events:
                events, self.cache.events = self.cache.events, []
                await publisher.publish(events)
            await asyncio.sleep(self.options.step_seconds)
            if not self.running and not self.waiting:
                self.work.clear()

    def step(self) -> None:
        while self.waiting and len(self.running) < self.options.max_num_seqs:
            self.running.append(self.waiting.pop(0))
            self.requests += 1
            if self.options.prefix_caching:
                self.cache.enter(self.running[-1])
        self.most_running = max(self.most_running, len(self.running) + len(self.waiting))
        left = self.options.budget
        part = self.options.long_prefill_token_threshold if len(self.running) + len(self.waiting) > 1 else 0
        for request in list(self.running):
            taken = min(left, part or left, len(request.tokens) - request.computed)
            left -= taken
            request.computed += taken
            self.computed_tokens += taken
            self.cache.store(request)
            if taken and request.computed == len(request.tokens):
                self.sample(request)

    def sample(self, request: Running) -> None:
        token = next_token(request.tokens, request.ignore_eos)
        request.tokens.append(token)
        whole = text_of(request.tokens)
        text = "" if whole.endswith(REPLACEMENT) else whole[len(request.shown) :]
        request.shown = request.shown if whole.endswith(REPLACEMENT) else whole
        length = len(request.tokens) - request.prompt >= request.wanted
        finish = "stop" if token == EOS else "length" if length else None
        choice: dict[str, Any] = {"index": 0, "text": text, "token_ids": [token], "finish_reason": finish}
        if request.logprobs is not None:
            likely = {f"token_id:{token + n}": -0.5 * (n + 1) for n in range(max(1, request.logprobs))}
            choice["logprobs"] = {"token_logprobs": [-0.5], "top_logprobs": [likely], "tokens": [], "text_offset": []}
        request.output.put_nowait(choice)
        if finish:
            self.leave(request)

    def leave(self, request: Running) -> None:
        if request in self.waiting:
            self.waiting.remove(request)
        elif request in self.running:
            self.running.remove(request)
            self.cache.leave(request)

    def metrics(self) -> str:
        held = sum(1 for count in self.cache.held.values() if count > 0)
        block, blocks = self.options.block, self.options.blocks
        return (
            f'vllm:num_requests_running{{engine="0",model_name="m"}} {len(self.running)}.0\n'
            f'vllm:num_requests_waiting{{engine="0",model_name="m"}} {len(self.waiting)}.0\n'
            f'vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {held / (blocks - 1)}\n'
            f'vllm:cache_config_info{{block_size="{block}",cache_dtype="auto",num_gpu_blocks="{blocks}",'
            f'enable_prefix_caching="{bool(self.options.prefix_caching)}"}} 1.0\n'
            f"served_engine_most_requests {self.most_running}\n"
            f"served_engine_requests {self.requests}\n"
            f"served_engine_computed_tokens {self.computed_tokens}\n"
        )
