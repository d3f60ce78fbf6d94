#!/usr/bin/env python3
"""One OpenAI-compatible address in front of prefill and decode engines that share a Larder cluster.

    proxy.py --prefill http://127.0.0.1:8100 --decode http://127.0.0.1:8200 --port 8000

A prompt goes to a prefill engine first, which computes one token and stores its KV cache in Larder, and then to a decode
engine, which pulls it and generates. Engines are taken in turn. Nothing is handed from engine to engine: if prefill fails, or
Larder does, decode computes the prompt itself. Needs aiohttp, which vLLM brings.
"""

import argparse
import asyncio
import itertools
import logging
import uuid

import aiohttp
from aiohttp import web

log = logging.getLogger("larder-proxy")
GENERATING = ("/v1/completions", "/v1/chat/completions")
HOP_HEADERS = {"transfer-encoding", "content-length", "connection", "content-encoding"}


class Proxy:
    """wait_ms: how long decode waits for blocks that prefill is still storing when its answer is there already."""

    def __init__(self, prefill, decode, wait_ms):
        self._prefill = itertools.cycle(prefill)
        self._decode = itertools.cycle(decode)
        self._engines = [*prefill, *decode]
        self._wait_ms = wait_ms
        self._session = None

    async def open(self, app):
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, connect=10))
        yield
        await self._session.close()

    async def prefill(self, path, body, headers):
        """Whether the prompt's blocks are on their way into Larder."""
        asked = {**body, "max_tokens": 1, "stream": False}
        asked.pop("stream_options", None)
        if "max_completion_tokens" in asked:
            asked["max_completion_tokens"] = 1
        try:
            async with self._session.post(next(self._prefill) + path, json=asked, headers=headers) as answer:
                await answer.read()
                return answer.status == 200
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            log.warning("prefill failed, decode computes the prompt: %s", error)
            return False

    async def generate(self, request):
        body = await request.json()
        headers = {"X-Request-Id": request.headers.get("X-Request-Id") or uuid.uuid4().hex}
        if "Authorization" in request.headers:
            headers["Authorization"] = request.headers["Authorization"]
        if await self.prefill(request.path, body, headers):
            body = {**body, "kv_transfer_params": {"larder_wait_ms": self._wait_ms}}
        async with self._session.post(next(self._decode) + request.path, json=body, headers=headers) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_HEADERS}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response

    async def health(self, request):
        async def alive(engine):
            async with self._session.get(engine + "/health") as answer:
                return answer.status == 200

        states = await asyncio.gather(*map(alive, self._engines), return_exceptions=True)
        good = all(state is True for state in states)
        return web.json_response(dict(zip(self._engines, map(str, states), strict=True)), status=200 if good else 503)


def make(prefill, decode, wait_ms=2000):
    """The application, for a server of the caller's."""
    proxy = Proxy(prefill, decode, wait_ms)
    app = web.Application(client_max_size=256 << 20)
    app.cleanup_ctx.append(proxy.open)
    for path in GENERATING:
        app.router.add_post(path, proxy.generate)
    app.router.add_get("/health", proxy.health)
    return app


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prefill", action="append", required=True, help="URL of a prefill engine; may be repeated")
    parser.add_argument("--decode", action="append", required=True, help="URL of a decode engine; may be repeated")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument(
        "--wait-ms", type=int, default=2000, help="decode waits so long for blocks that are being stored"
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    app = make(arguments.prefill, arguments.decode, arguments.wait_ms)
    web.run_app(app, host=arguments.host, port=arguments.port, print=None)


if __name__ == "__main__":
    main()
