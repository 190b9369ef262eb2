"""A fake worker for routers, run in the routers' environment: it streams TOKENS chunks of a completion."""

import asyncio
import json
import sys

from aiohttp import web

TOKENS = 64
CHUNK = json.dumps({"id": "x", "object": "text_completion", "choices": [{"index": 0, "text": "a"}]}).encode()


async def completions(request: web.Request) -> web.StreamResponse:
    """Stream an OpenAI-style completion as server-sent events."""
    await request.read()
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for _ in range(TOKENS):
        await asyncio.sleep(request.app["step_seconds"])
        await response.write(b"data: " + CHUNK + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    return response


async def answer(_request: web.Request) -> web.Response:
    """Answer every other request of a router."""
    return web.json_response({"data": [{"id": "fake"}], "model_path": "fake", "status": "ok"})


app = web.Application(client_max_size=1 << 24)
app["step_seconds"] = float(sys.argv[2])
app.router.add_post("/v1/completions", completions)
app.router.add_route("*", "/{rest:.*}", answer)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=lambda _: None)
