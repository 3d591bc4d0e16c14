"""Equal requests get the same answer, where it would be the same anyway: greedy ones, and those with a seed."""

import hashlib
import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from web.guard import App, Message, Receive, Send

_FAILED = b'data: {"error"'
"""In a stream that broke off after its status had been sent."""


@dataclass(frozen=True, slots=True)
class Answer:
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def __len__(self) -> int:
        """Bytes, about."""
        return len(self.body) + 500


def cache_key(path: str, asked: Mapping[str, Any]) -> str | None:
    """None: not to be kept, for another time it would be answered otherwise."""
    if asked.get("temperature") != 0 and asked.get("seed") is None:
        return None
    said = {name: value for name, value in asked.items() if name not in ("user", "request_id")}
    return hashlib.sha256(json.dumps([path, said], sort_keys=True).encode()).hexdigest()


async def answer_from(
    cache: MutableMapping[str, Answer],
    key: str | None,
    app: App,
    scope: MutableMapping[str, Any],
    receive: Receive,
    send: Send,
) -> None:
    """The app's answer, or an equal one of before; the header x-cache says which: hit, miss, or none (not kept)."""
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
            # vLLM answers who has hung up with `null`
            if head[0]["status"] == 200 and not message.get("more_body", False) and not gone:
                _keep(cache, key, Answer(tuple(head[0]["headers"]), b"".join(parts)))
        await send(message)

    await app(scope, listening, keeping)


def _keep(cache: MutableMapping[str, Answer], key: str, answer: Answer) -> None:
    too_large = len(answer) > getattr(cache, "maxsize", float("inf"))
    if not too_large and _FAILED not in answer.body:
        cache[key] = answer
