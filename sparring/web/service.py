"""Wraps a service in its guard, and runs it."""

import argparse
import ipaddress
import math
import socket

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from sparring.core.errors import SparringError
from sparring.web.guard import AccessMiddleware, error_answer
from sparring.web.keys import Keyring


def check(options: argparse.Namespace) -> None:
    """Raises SparringError if an option is invalid."""
    if options.keys is None and not is_loopback(options.host):
        raise SparringError(
            f"--host {options.host}: without keys anybody could use it; make one (`python -m sparring keys add NAME`) and "
            "name its file with --keys, or stay with --host 127.0.0.1"
        )
    if options.keys is not None:
        Keyring(options.keys)
    if options.requests_per_minute is not None and not 1 <= options.requests_per_minute < math.inf:
        raise SparringError(f"--requests-per-minute {options.requests_per_minute:g}: 1 or more")
    if options.requests_at_once is not None and options.requests_at_once < 1:
        raise SparringError(f"--requests-at-once {options.requests_at_once}: 1 or more")
    if options.requests_at_once is not None and options.keys is None:
        raise SparringError("--requests-at-once counts per key: it has no effect without --keys")
    if not 0 < options.max_body_mb < math.inf:
        raise SparringError(f"--max-body-mb {options.max_body_mb:g}: a number above 0")
    if options.audit_log is not None and not options.audit_log.parent.is_dir():
        raise SparringError(f"--audit-log {options.audit_log}: there is no folder {options.audit_log.parent}")


def guarded(app: FastAPI, options: argparse.Namespace) -> FastAPI:
    """Returns the app with the guard and with error responses in the guard's form. Raises SparringError."""
    check(options)
    say_errors_plainly(app)
    app.add_middleware(
        AccessMiddleware,
        keys=options.keys,
        requests_per_minute=options.requests_per_minute,
        requests_at_once=options.requests_at_once or 512,
        max_body_bytes=int(options.max_body_mb * (1 << 20)),
        audit_log=options.audit_log,
    )
    return app


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def say_errors_plainly(app: FastAPI) -> None:
    """Makes all error responses {"error": {"message", "type"}}. An invalid body, whether JSON or not, becomes a 400."""

    @app.exception_handler(RequestValidationError)
    async def bad_request(_: Request, error: RequestValidationError) -> JSONResponse:
        # of several forms that a field may have, the one in which the fault lies deepest is the one that was meant
        first = max(error.errors(), key=lambda found: len(found["loc"]))
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        if first["type"] == "json_invalid":
            said = f"the body is not JSON: {first['ctx']['error']} (character {where})"
        elif not where and not isinstance(error.body, dict):
            said = "expected a JSON object, with the header Content-Type: application/json"
        else:
            said = (f"{where}: " if where else "") + first["msg"].removeprefix("Value error, ")
        return error_answer(400, said, "bad_request")

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> JSONResponse:
        return error_answer(error.status_code, str(error.detail), "refused", dict(error.headers or {}))


def run(app: FastAPI, options: argparse.Namespace) -> None:
    """Serves the app until Ctrl-C or SIGTERM, and then answers the requests in progress for up to 30 s. Raises SparringError
    if the address is not available."""
    with listening(options.host, options.port) as server:
        print(f"listening on {address(*server.getsockname()[:2])}", flush=True)
        config = uvicorn.Config(
            app, access_log=False, log_level="warning", timeout_keep_alive=60, timeout_graceful_shutdown=30
        )
        uvicorn.Server(config).run(sockets=[server])


def listening(host: str, port: int) -> socket.socket:
    """Returns a listening socket. Raises SparringError if the address is not available."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise SparringError(f"--host {host} --port {port}: {error.strerror}") from None


def address(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
