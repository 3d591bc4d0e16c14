"""Caches answers to equal requests, if the answer would be the same anyway: for greedy requests, and those with a seed."""

import hashlib
import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from sparring.web.guard import App, Message, Receive, Send

_FAILED = b'data: {"error"'
"""Occurs in a stream that failed after its status had been sent."""


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def __len__(self) -> int:
        """Returns the approximate size in bytes."""
        return len(self.body) + 500


def cache_key(path: str, asked: Mapping[str, Any]) -> str | None:
    """Returns the request's key in the cache. None if the answer must not be cached, since it would differ each time."""
    if asked.get("temperature") != 0 and asked.get("seed") is None:
        return None
    said = {name: value for name, value in asked.items() if name not in ("user", "request_id")}
    return hashlib.sha256(json.dumps([path, said], sort_keys=True).encode()).hexdigest()


async def answer_from(
    cache: MutableMapping[str, CachedAnswer],
    key: str | None,
    app: App,
    scope: MutableMapping[str, Any],
    receive: Receive,
    send: Send,
) -> None:
    """Sends the cached answer, or the app's, which is then cached. The header x-cache is hit, miss, or none (not cached)."""
    found = cache.get(key) if key else None
    if found:
        headers = [*found.headers, (b"x-cache", b"hit")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        return await send({"type": "http.response.body", "body": found.body, "more_body": False})
    head: list[Message] = []
    parts: list[bytes] = []
    gone = False

    async def listening() -> Message:
        nonlocal gone
        message = await receive()
        gone |= message["type"] == "http.disconnect"
        return message

    async def keeping(message: Message) -> None:
        if message["type"] == "http.response.start":
            head.append(message)
            message = {**message, "headers": [*message["headers"], (b"x-cache", b"miss" if key else b"none")]}
        elif key:
            parts.append(message.get("body", b""))
            # vLLM answers a disconnected client with `null`
            if head[0]["status"] == 200 and not message.get("more_body", False) and not gone:
                _keep(cache, key, CachedAnswer(tuple(head[0]["headers"]), b"".join(parts)))
        await send(message)

    await app(scope, listening, keeping)


def _keep(cache: MutableMapping[str, CachedAnswer], key: str, answer: CachedAnswer) -> None:
    too_large = len(answer) > getattr(cache, "maxsize", float("inf"))
    if not too_large and _FAILED not in answer.body:
        cache[key] = answer
