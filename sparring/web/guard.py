"""Middleware for HTTP services: keys, a rate limit, a limit on request bodies, an audit log, `/healthz` and `/metrics`.

It is plain ASGI: `AccessMiddleware(app, ...)` for a server, `app.add_middleware(AccessMiddleware, ...)` for FastAPI, including Ray Serve. The whole
body is read before the service gets it, so it is never larger than allowed, even if its Content-Length is wrong. Responses
are streamed through. A key is sent as `Authorization: Bearer KEY`, or, by clients that accept a URL only, as its password:
`http://any:KEY@host`. Rates are counted per process, so n replicas allow n times the rate. There is no TLS: use a proxy.
Connections other than HTTP requests (web sockets) are refused.

Errors have the body {"error": {"message", "type"}}: 401 without a valid key, 429 with Retry-After if a key sends too many
requests per minute or at once, 413 if the body is too large, 500 if the service raised an exception.
The audit log has one line per request, including refused requests, except for /healthz and /metrics:

    {"time": "2026-11-22T12:00:00.123+00:00", "key": "alice", "method": "POST", "path": "/judge", "status": 200,
     "seconds": 0.0123, "received": 210, "sent": 180, "hung_up": false}

`key` is the key's name, or null without a valid key. `status` is 499 if the client hung up before the response began.
"""

import asyncio
import base64
import collections
import contextlib
import json
import logging
import math
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest
from starlette.responses import JSONResponse, Response

from sparring.web.keys import Keyring

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

REQUESTS = Counter(
    "sparring_http_requests", "Requests answered, by route and status", ["method", "path", "status"]
)
SECONDS = Histogram(
    "sparring_http_request_seconds",
    "Seconds from a request's head to its answer's end",
    ["path"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
)
IN_FLIGHT = Gauge("sparring_http_in_flight", "Requests under way")
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
HUNG_UP = Counter("sparring_http_hung_up", "Clients that hung up before their answer's end", ["path"])


class Window:
    """The requests of the last minute. A token bucket that is full at first would admit nearly twice the rate in the first
    minute: its contents, and what flows in meanwhile."""

    def __init__(self, per_minute: float) -> None:
        """per_minute: at least 1; for 1.5, one request is admitted in 40 seconds."""
        self._most = int(per_minute)
        self._seconds = 60 * self._most / per_minute
        self._admitted: collections.deque[float] = collections.deque()

    def wait_s(self, now: float) -> float:
        """Admits a request and returns 0, or returns the seconds until the next one is admitted. now: time.monotonic()."""
        while self._admitted and now - self._admitted[0] >= self._seconds:
            self._admitted.popleft()
        if len(self._admitted) < self._most:
            self._admitted.append(now)
            return 0.0
        return self._admitted[0] + self._seconds - now


@dataclass(slots=True)
class Exchange:
    """The state of a request and its response."""

    start: float = field(default_factory=time.perf_counter)
    key: str | None = None
    received: int = 0
    sent: int = 0
    status: int = 499
    complete: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client has hung up."""


class AccessMiddleware:
    def __init__(
        self,
        app: App,
        *,
        keys: Path | None = None,
        requests_per_minute: float | None = None,
        requests_at_once: int | None = None,
        max_body_bytes: int = 1 << 20,
        audit_log: Path | None = None,
    ) -> None:
        """Opens the key file and the audit log.

        Args:
            keys: see sparring.web.keys; None accepts every request, and all requests share one rate limit.
            requests_at_once: maximum number of simultaneous requests per key, so that one key cannot occupy the whole
                service; without keys there is no such limit.

        Raises SparringError or OSError.
        """
        self._app = app
        self._keyring = Keyring(keys) if keys else None
        self._per_minute = requests_per_minute
        self._max_body = max_body_bytes
        self._audit = open(audit_log, "a", buffering=1, encoding="utf-8") if audit_log else None  # noqa: SIM115
        self._at_once = requests_at_once
        self._windows: dict[str | None, Window] = {}
        self._under_way: collections.Counter[str] = collections.Counter()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        if scope["path"] == "/healthz":
            return await JSONResponse({"status": "ok"})(scope, receive, send)
        exchange = Exchange()

        async def counting_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
            elif message["type"] == "http.response.body":
                exchange.sent += len(message.get("body", b""))
                exchange.complete = not message.get("more_body", False)
            await send(message)

        IN_FLIGHT.inc()
        try:
            await self._handle(scope, receive, counting_send, exchange)
        except asyncio.CancelledError:  # some servers cancel the task when the client is gone
            exchange.gone.set()
            raise
        except Exception:
            if not exchange.gone.is_set():
                logging.getLogger(__name__).exception("%s %s", scope["method"], scope["path"])
                if exchange.status != 499:  # the response has begun: the server cuts it off
                    exchange.status, exchange.complete = 500, True
                    raise
                said = error_answer(500, "the service failed; its log says why", "failed")
                await said(scope, receive, counting_send)
        finally:
            IN_FLIGHT.dec()
            self._write_down(scope, exchange)

    async def _handle(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send, exchange: Exchange
    ) -> None:
        headers = dict(scope["headers"])
        if self._keyring:
            exchange.key = self._keyring.name_of(key_of(headers.get(b"authorization", b"")))
            if exchange.key is None:
                message = "a key is wanted: `Authorization: Bearer KEY`, as `python -m sparring keys add` printed it"
                refused = error_answer(401, message, "unauthorized", {"WWW-Authenticate": "Bearer"})
                return await refused(scope, receive, send)
        if scope["path"] == "/metrics":
            figures = Response(generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})
            return await figures(scope, receive, send)
        if wait_s := self._wait_s(exchange.key):
            message = f"more than {self._per_minute:g} requests a minute; try again in {wait_s:.1f} s"
            return await _too_fast(message, math.ceil(wait_s))(scope, receive, send)
        if exchange.key is None or self._at_once is None:
            return await self._let_in(scope, receive, send, exchange)
        if self._under_way[exchange.key] >= self._at_once:
            message = f"{self._at_once} requests of this key are under way; try again when one is answered"
            return await _too_fast(message, 1)(scope, receive, send)
        self._under_way[exchange.key] += 1
        try:
            await self._let_in(scope, receive, send, exchange)
        finally:
            self._under_way[exchange.key] -= 1

    async def _let_in(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send, exchange: Exchange
    ) -> None:
        body = await self._read(dict(scope["headers"]), receive, exchange)
        if body is None:
            message = f"the body is larger than {self._max_body} bytes"
            refused = error_answer(413, message, "too_large", {"Connection": "close"})
            return await refused(scope, receive, send)
        if exchange.gone.is_set():
            return
        watch = asyncio.create_task(self._watch(receive, exchange))

        async def hung_up() -> Message:
            await exchange.gone.wait()
            return {"type": "http.disconnect"}

        try:
            await self._app(scope, again(body, hung_up), send)
        finally:
            watch.cancel()

    def _wait_s(self, key: str | None) -> float:
        if not self._per_minute:
            return 0.0
        if key not in self._windows:
            self._windows[key] = Window(self._per_minute)
        return self._windows[key].wait_s(time.monotonic())

    async def _read(self, headers: dict[bytes, bytes], receive: Receive, exchange: Exchange) -> bytes | None:
        """Returns the body, or None if it is too large."""
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > self._max_body:
            return None
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                exchange.gone.set()
                return b""
            body += message.get("body", b"")
            exchange.received = len(body)
            if len(body) > self._max_body:
                return None
            if not message.get("more_body", False):
                return bytes(body)

    async def _watch(self, receive: Receive, exchange: Exchange) -> None:
        """Waits for the client to hang up. From here on, only this task receives from the server: the hang-up is thus noticed
        even if the service never receives."""
        while (await receive())["type"] != "http.disconnect":
            pass
        if not exchange.complete:
            exchange.gone.set()

    def _write_down(self, scope: MutableMapping[str, Any], exchange: Exchange) -> None:
        """Records the request in the audit log and the metrics. The metrics are labelled by route and by known methods only,
        since a client may invent any number of paths and methods."""
        seconds = time.perf_counter() - exchange.start
        hung_up = exchange.gone.is_set() or not exchange.complete
        route = getattr(scope.get("route"), "path", "other")
        if scope["path"] == "/metrics":
            return
        REQUESTS.labels(
            scope["method"] if scope["method"] in METHODS else "other", route, exchange.status
        ).inc()
        SECONDS.labels(route).observe(seconds)
        if hung_up:
            HUNG_UP.labels(route).inc()
        if self._audit is None:
            return
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "key": exchange.key,
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": exchange.status,
            "seconds": round(seconds, 4),
            "received": exchange.received,
            "sent": exchange.sent,
            "hung_up": hung_up,
        }
        try:
            self._audit.write(json.dumps(line) + "\n")
        except OSError as error:  # a full disk: the service goes on
            logging.getLogger(__name__).error("audit log: %s", error)


def key_of(authorization: bytes) -> str:
    """Returns the key of an Authorization header: KEY of `Bearer KEY`, or the password of `Basic`; "" if there is none."""
    scheme, _, rest = authorization.decode("latin-1").partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError):
            return base64.b64decode(rest, validate=True).decode("latin-1").partition(":")[2]
    return ""


def again(body: bytes, then: Receive) -> Receive:
    """Returns a `receive` function that first returns the whole body, and then the messages of `then`."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else await then()

    return receive


def error_answer(status: int, message: str, kind: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": kind}}, status, headers=headers)


def _too_fast(message: str, wait_s: int) -> JSONResponse:
    return error_answer(429, message, "too_fast", {"Retry-After": str(wait_s)})
