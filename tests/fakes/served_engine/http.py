"""The HTTP interface of the served engine."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from tests.fakes.served_engine.engine import ServedEngine
from tests.fakes.served_engine.running import Running
from tests.fakes.served_engine.tokens import text_of

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

# With the option `harmony`, answers begin with these marks, of which each is a special token.
START, FINAL = "<|start|>assistant", "<|channel|>final<|message|>"
THOUGHT = f"<|channel|>analysis<|message|>Hm.<|end|>{START}{FINAL}"


class Http:
    """The ASGI application."""

    def __init__(self, engine: ServedEngine) -> None:
        self.engine = engine

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        given = json.loads(body) if body else {}
        if scope["path"] == "/v1/completions":
            await self.complete(given, receive, send)
            return
        status, answer = self.answer(scope["path"], given)
        await respond(send, status, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def answer(self, path: str, given: dict[str, Any]) -> tuple[int, Any]:
        options = self.engine.options
        match path:
            case "/health":
                return 200, b""
            case "/server_info" if options.tells_settings:
                settings = {"long_prefill_token_threshold": options.long_prefill_token_threshold, "other": 1}
                return 200, {"vllm_config": {"scheduler_config": settings, "device": "cpu"}, "vllm_env": {}}
            case "/version":
                return 200, {"version": "0.32.0"}
            case "/v1/models":
                return 200, {"data": [{"id": options.model, "root": "/m", "parent": None, "max_model_len": 400}]}
            case "/metrics":
                return 200, self.engine.metrics().encode()
            case "/tokenize" if "messages" in given:
                lines = [f"tool: {json.dumps(tool['function'])}\n" for tool in given.get("tools", ())]
                lines += [f"{message['role']}: {_content(message)}\n" for message in given["messages"]]
                if any(message["role"] == "tool" for message in given["messages"]):
                    return 400, {"error": {"message": "the template knows no such role", "code": 400}}
                text = "".join(lines) + ("assistant: " if given["add_generation_prompt"] else "")
                if options.harmony:
                    text = text.replace("assistant: ", f"{START}{FINAL}" if "!" in text else START)
                return 200, {"tokens": list(text.encode()), "count": 0, "max_model_len": 400}
            case "/tokenize":
                return 200, {"tokens": list(given["prompt"].encode()), "count": 0, "max_model_len": 400}
            case "/detokenize":
                return 200, {"prompt": text_of(given["tokens"])}
            case "/reset_prefix_cache":
                self.engine.cache.clear()
                return 200, b""
            case _:
                return 404, {"error": {"message": path, "code": 404}}

    async def complete(self, given: dict[str, Any], receive: Receive, send: Send) -> None:
        text = text_of(given["prompt"])
        if "refuse" in text or "fail at" in text:
            status = 400 if "refuse" in text else 500
            message = f"as you asked: {json.dumps(given.get('structured_outputs'))}"
            await respond(send, status, json.dumps({"error": {"message": message, "code": status}}).encode())
            return
        if given.get("seed", 0) >= 2**63:
            await respond(send, 400, b'{"error": {"message": "the seed is too large", "code": 400}}')
            return
        request = Running(
            given["prompt"],
            given["max_tokens"],
            given["ignore_eos"],
            given.get("cache_salt", ""),
            given.get("logprobs"),
        )
        self.engine.waiting.append(request)
        self.engine.work.set()
        gone: asyncio.Future[dict[str, Any]] = asyncio.ensure_future(receive())
        try:
            port = str(self.engine.options.port).encode()
            headers = [(b"content-type", b"text/event-stream"), (b"x-served-by", port)]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            sent = 0
            while not gone.done():
                choice = asyncio.create_task(request.output.get())
                await asyncio.wait({gone, choice}, return_when=asyncio.FIRST_COMPLETED)
                if not choice.done():
                    choice.cancel()
                    return
                if text.startswith("break") and sent == 3:
                    raise ConnectionAbortedError("as you asked")
                if text.startswith("stay") and sent == 1:
                    await gone
                    return
                if self.engine.options.harmony and not sent:
                    marks = re.sub(r"<\|\w+\|>", "", THOUGHT) if given["skip_special_tokens"] else THOUGHT
                    choice.result()["text"] = marks + choice.result()["text"]
                sent += 1
                chunk = json.dumps({"id": "cmpl", "choices": [choice.result()]})
                await send(body_of(f"data: {chunk}\n\n".encode(), more=True))
                if choice.result()["finish_reason"]:
                    if given.get("stream_options", {}).get("include_usage"):
                        chunk = json.dumps({"id": "cmpl", "choices": [], "usage": {"completion_tokens": sent}})
                        await send(body_of(f"data: {chunk}\n\n".encode(), more=True))
                    await send(body_of(b"data: [DONE]\n\n", more=False))
                    return
        finally:
            gone.cancel()
            self.engine.leave(request)


def _content(message: dict[str, Any]) -> str:
    """A message's text, without the reasoning of earlier answers, and its calls as Hermes has them."""
    called = [call["function"] for call in message.get("tool_calls", ())]
    calls = [{"name": call["name"], "arguments": json.loads(call["arguments"])} for call in called]
    text: str = message["content"].rpartition("</think>\n\n")[2]
    return text + "".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls)


def body_of(data: bytes, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def respond(send: Send, status: int, data: bytes) -> None:
    headers = [(b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send(body_of(data, more=False))
