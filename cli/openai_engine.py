"""An engine without a model, which speaks OpenAI's API as `vllm serve` does: `python -m cli.openai_engine`.

It runs a few requests at once, in the order of their arrival, and takes the same time for each token. A token is a
word, and four bytes of a prompt count as one.
"""

import argparse
import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

from serving.logs import configure_logging

MODEL = "fake"
WORD = "word "
TOKENS = 16  # of an answer, where the request says nothing
log = logging.getLogger(__name__)
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class OpenAIEngine:
    """An ASGI application that runs `running` requests at once, at `token_seconds` for each of their tokens."""

    def __init__(self, name: str, running: int, token_seconds: float) -> None:
        self._name = name
        self._room = asyncio.Semaphore(running)
        self._token_seconds = token_seconds

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request; see the ASGI specification."""
        body = await _body(receive)
        match scope["path"]:
            case "/health":
                await self._send(send, 200, b"")
            case "/v1/models":
                await self._send(send, 200, _encoded({"object": "list", "data": [{"id": MODEL, "object": "model"}]}))
            case "/v1/completions" | "/v1/chat/completions":
                await self._complete(body, send, is_chat="chat" in scope["path"])
            case path:
                await self._send(send, 404, _encoded({"error": {"message": f"there is no {path}", "code": 404}}))

    async def _complete(self, body: bytes, send: Send, *, is_chat: bool) -> None:
        try:
            given = json.loads(body)
            tokens = int(given.get("max_completion_tokens") or given.get("max_tokens") or TOKENS)
        except (ValueError, AttributeError, TypeError) as error:
            await self._send(send, 400, _encoded({"error": {"message": f"the body: {error}", "code": 400}}))
            return
        usage = {"prompt_tokens": len(body) // 4, "completion_tokens": tokens, "total_tokens": len(body) // 4 + tokens}
        async with self._room:
            if given.get("stream"):
                await self._stream(send, given, tokens, usage, is_chat=is_chat)
            else:
                await asyncio.sleep(tokens * self._token_seconds)
                text = WORD * tokens
                part = {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
                choice = {"index": 0, **part, "finish_reason": "length"}
                await self._send(send, 200, _encoded({**_head(is_chat, ""), "choices": [choice], "usage": usage}))

    async def _stream(
        self, send: Send, given: dict[str, Any], tokens: int, usage: dict[str, int], *, is_chat: bool
    ) -> None:
        head = _head(is_chat, ".chunk")
        part = {"delta": {"content": WORD}} if is_chat else {"text": WORD}
        await send(self._start(200, b"text/event-stream"))
        for number in range(1, tokens + 1):
            await asyncio.sleep(self._token_seconds)
            choice = {"index": 0, **part, "finish_reason": "length" if number == tokens else None}
            await send(_chunk({**head, "choices": [choice]}))
        if (given.get("stream_options") or {}).get("include_usage"):
            await send(_chunk({**head, "choices": [], "usage": usage}))
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def _send(self, send: Send, status: int, body: bytes) -> None:
        await send(self._start(status, b"application/json"))
        await send({"type": "http.response.body", "body": body})

    def _start(self, status: int, content_type: bytes) -> dict[str, Any]:
        headers = [(b"content-type", content_type), (b"x-served-by", self._name.encode())]
        return {"type": "http.response.start", "status": status, "headers": headers}


async def _body(receive: Receive) -> bytes:
    body, is_whole = b"", False
    while not is_whole:
        message = await receive()
        body += message.get("body", b"")
        is_whole = not message.get("more_body")
    return body


def _head(is_chat: bool, suffix: str) -> dict[str, Any]:
    kind = f"chat.completion{suffix}" if is_chat else "text_completion"
    return {"id": "fake", "object": kind, "created": 0, "model": MODEL}


def _encoded(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _chunk(value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "http.response.body", "body": b"data: %b\n\n" % _encoded(value), "more_body": True}


def main() -> None:
    """Serve on loopback until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m cli.openai_engine", description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="0 picks a free one (default: %(default)s)")
    parser.add_argument("--running", type=int, default=8, help="requests at once (default: %(default)s)")
    parser.add_argument(
        "--token-seconds", type=float, default=0.02, help="time in seconds that each token takes (default: %(default)s)"
    )
    options = parser.parse_args()
    configure_logging("info")
    with socket.create_server(("127.0.0.1", options.port)) as listener:
        port = listener.getsockname()[1]
        engine = OpenAIEngine(f"127.0.0.1:{port}", options.running, options.token_seconds)
        settings = uvicorn.Config(engine, log_config=None, log_level="warning", access_log=False, lifespan="off")
        log.info("listening", extra={"service": "openai_engine", "port": port})
        uvicorn.Server(settings).run(sockets=[listener])


if __name__ == "__main__":
    main()
