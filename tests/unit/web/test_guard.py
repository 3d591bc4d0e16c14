"""A guard before a small service, by real requests to a real server."""

import argparse
import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel

from sparring.core.errors import SparringError
from sparring.web import keys as web_keys
from sparring.web.guard import AccessMiddleware, Window
from sparring.web.options import add_options
from sparring.web.service import guarded
from tests.serving import served


class Word(BaseModel):
    word: str


def make_app(go_on: threading.Event | None = None) -> FastAPI:
    app = FastAPI()

    async def may_go_on() -> None:
        while go_on is not None and not go_on.is_set():
            await asyncio.sleep(0.01)

    @app.post("/echo")
    async def echo(word: Word) -> dict[str, str]:
        return {"word": word.word}

    @app.get("/things/{thing}")
    async def thing(thing: str) -> str:
        if thing == "broken":
            raise RuntimeError("broken")
        return thing

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> Any:
            yield "first"
            await may_go_on()
            yield "second"

        return StreamingResponse(parts())

    @app.get("/slow")
    async def slow() -> str:
        await may_go_on()
        return "done"

    return app


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Callable[..., tuple[httpx.Client, Path]]]:
    """Starts one with the guard's options; a client, and its audit log."""
    with contextlib.ExitStack() as opened:

        def start(app: FastAPI | None = None, **options: Any) -> tuple[httpx.Client, Path]:
            log, parser = tmp_path / "audit.jsonl", argparse.ArgumentParser()
            add_options(parser, port=0)
            given = parser.parse_args([f"--audit-log={log}"])
            vars(given).update(options)
            url = opened.enter_context(served(guarded(app or make_app(), given)))
            return opened.enter_context(httpx.Client(base_url=url)), log

        yield start


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, str, str]:
    """A file of keys, and those of alice and bob."""
    path = tmp_path / "keys.json"
    return path, web_keys.add(path, "alice"), web_keys.add(path, "bob")


def lines(log: Path, count: int) -> list[dict[str, Any]]:
    """Once so many requests are written down: that is after the answer's last byte."""
    for _ in range(500):
        found = [json.loads(line) for line in log.read_text().splitlines()]
        if len(found) >= count:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{len(found)} of {count} lines: {found}")


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_only_a_good_key_is_let_in_and_a_removed_one_no_more(
    service: Any, keys: tuple[Path, str, str]
) -> None:
    path, alice, bob = keys
    assert path.stat().st_mode & 0o077 == 0
    assert alice not in path.read_text()
    client, log = service(keys=path)
    assert client.post("/echo", json={"word": "x"}, headers=bearer(alice)).json() == {"word": "x"}
    for headers in ({}, bearer("sk-wrong"), {"Authorization": "Bearer"}, {"Authorization": f"Basic {alice}"}):
        refused = client.post("/echo", json={"word": "x"}, headers=headers)
        assert refused.status_code == 401 and refused.headers["WWW-Authenticate"] == "Bearer"
        assert "sparring keys add" in refused.json()["error"]["message"]
    assert client.get("/things/a", auth=("any", alice)).json() == "a"  # a URL's password
    assert client.get("/things/a", auth=(alice, "")).status_code == 401
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/metrics").status_code == 401
    web_keys.remove(path, "alice")
    assert client.post("/echo", json={"word": "x"}, headers=bearer(alice)).status_code == 401
    assert client.post("/echo", json={"word": "x"}, headers=bearer(bob)).status_code == 200
    path.write_text("no keys any more")
    assert client.post("/echo", json={"word": "x"}, headers=bearer(bob)).status_code == 401
    written = lines(log, 10)
    assert [line["key"] for line in written] == ["alice", *[None] * 4, "alice", None, None, "bob", None]
    assert alice not in log.read_text() and bob not in log.read_text()


def test_each_key_has_its_own_rate(service: Any, keys: tuple[Path, str, str]) -> None:
    path, alice, bob = keys
    client, _ = service(keys=path, requests_per_minute=2)
    statuses = [client.get("/things/a", headers=bearer(alice)).status_code for _ in range(2)]
    refused = client.get("/things/a", headers=bearer(alice))
    assert statuses == [200, 200] and refused.status_code == 429
    assert 30 < int(refused.headers["Retry-After"]) <= 60
    assert client.get("/things/a", headers=bearer(bob)).status_code == 200
    assert client.get("/healthz").status_code == 200


def test_one_key_cannot_fill_the_service(service: Any, keys: tuple[Path, str, str]) -> None:
    path, alice, bob = keys
    go_on = threading.Event()
    client, _ = service(make_app(go_on), keys=path, requests_at_once=2)
    with contextlib.ExitStack() as streams:
        for _ in range(2):
            answer = streams.enter_context(client.stream("GET", "/stream", headers=bearer(alice)))
            assert answer.status_code == 200
        refused = client.get("/things/a", headers=bearer(alice))
        assert refused.status_code == 429 and refused.headers["Retry-After"] == "1"
        assert "2 requests of this key are under way" in refused.json()["error"]["message"]
        assert client.get("/things/a", headers=bearer(bob)).status_code == 200
        assert client.get("/metrics", headers=bearer(alice)).status_code == 200
        go_on.set()
    for _ in range(500):  # each gives its place back after its answer's last byte
        if (again := client.get("/things/a", headers=bearer(alice))).status_code == 200:
            break
        time.sleep(0.01)
    assert again.status_code == 200


def test_no_minute_admits_more_requests_than_the_rate() -> None:
    window = Window(60)
    asked = [i / 8 for i in range(2400)]  # eight a second, for five minutes
    admitted = [now for now in asked if window.wait_s(now) == 0.0]
    assert len(admitted) == 5 * 60
    for start in asked:
        assert sum(start <= now < start + 60 for now in admitted) <= 60


@pytest.mark.parametrize(
    ("rate", "admitted", "refused_at", "wait"),
    [(2, (0.0, 20.0), 50.0, 10.0), (1.5, (0.0,), 30.0, 10.0)],
    ids=["2", "no whole number"],
)
def test_the_stated_wait_suffices(rate: float, admitted: tuple, refused_at: float, wait: float) -> None:
    window = Window(rate)
    assert [window.wait_s(now) for now in admitted] == [0.0] * len(admitted)
    assert window.wait_s(refused_at) == pytest.approx(wait) and window.wait_s(refused_at + wait) == 0.0


def test_a_body_is_never_larger_than_allowed(service: Any) -> None:
    client, log = service(max_body_mb=0.001)
    assert client.post("/echo", json={"word": "x" * 900}).status_code == 200
    declared = client.post("/echo", json={"word": "x" * 2000})
    assert declared.status_code == 413 and "1048 bytes" in declared.json()["error"]["message"]
    chunked = client.post("/echo", content=(b"x" * 100 for _ in range(200)))  # no Content-Length
    assert chunked.status_code == 413
    assert client.post("/echo", json={"word": "x"}).status_code == 200
    assert [line["status"] for line in lines(log, 4)] == [200, 413, 413, 200]


def test_a_content_length_that_lies_is_believed_by_nobody(service: Any) -> None:
    client, _ = service()
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
    for length in (b"5", b"4000", b"-1", b"1e9"):
        with socket.create_connection((client.base_url.host, client.base_url.port)) as raw:
            raw.sendall(head + length + b"\r\n\r\n" + b'{"word": "a longer body"}')
            raw.shutdown(socket.SHUT_WR)
            said = b"".join(iter(lambda raw=raw: raw.recv(4096), b""))
        assert b" 200 OK" not in said
    assert client.post("/echo", json={"word": "x"}).status_code == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"word": ', "not JSON"),
        (b"[" * 100_000, ""),
        (b'{"word": "\xff"}', ""),
        (b'{"word": 3}', "word: Input should be a valid string"),
        (b"{}", "word: Field required"),
        (b"", ""),
    ],
)
def test_a_malformed_body_is_a_400(service: Any, body: bytes, message: str) -> None:
    client, _ = service()
    answer = client.post("/echo", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


def test_answers_pass_as_they_come(service: Any) -> None:
    go_on = threading.Event()
    client, log = service(make_app(go_on))
    with client.stream("GET", "/stream") as answer:
        parts = answer.iter_text()
        assert next(parts) == "first"  # the second waits until this is here
        go_on.set()
        assert list(parts) == ["second"]
    line = lines(log, 1)[0]
    assert (line["status"], line["sent"], line["hung_up"]) == (200, len("firstsecond"), False)


def test_a_client_that_hangs_up_is_written_down_and_harms_nobody(service: Any) -> None:
    go_on = threading.Event()
    client, log = service(make_app(go_on))
    with client.stream("GET", "/stream") as answer:
        next(answer.iter_text())
    assert lines(log, 1)[0] | {"status": 200, "hung_up": True, "sent": 5} == lines(log, 1)[0]
    with pytest.raises(httpx.ReadTimeout):
        client.get("/slow", timeout=0.1)
    time.sleep(0.1)
    go_on.set()
    gone = lines(log, 2)[1]
    assert gone["hung_up"] and gone["path"] == "/slow"
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf"
    with socket.create_connection((client.base_url.host, client.base_url.port)) as raw:
        raw.sendall(head)
        time.sleep(0.1)
    half = lines(log, 3)[2]
    assert half["hung_up"] and half["status"] == 499 and half["received"] == 4
    assert client.get("/slow").json() == "done"


def test_what_is_counted(service: Any) -> None:
    client, log = service()
    paths = ("things/a", "things/b", "things/broken", "no/such/path")
    assert [client.get(f"/{path}").status_code for path in paths] == [200, 200, 500, 404]
    client.request("TRACE", "/things/a")
    lines(log, 5)
    page = client.get("/metrics").text
    figures = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    of_things = 'sparring_http_requests_total{method="GET",path="/things/{thing}",status="%s"}'
    assert float(figures[of_things % 200]) >= 2 and float(figures[of_things % 500]) >= 1
    assert float(figures['sparring_http_requests_total{method="GET",path="other",status="404"}']) >= 1
    assert float(figures['sparring_http_request_seconds_count{path="/things/{thing}"}']) >= 3
    assert float(figures["sparring_http_in_flight"]) == 1  # this very request
    assert "/no/such/path" not in page and "TRACE" not in page
    assert [line["path"] for line in lines(log, 5)][-2] == "/no/such/path"


def test_it_guards_any_asgi_service() -> None:
    async def plain(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await Response((await receive())["body"][::-1])(scope, receive, send)

    with served(AccessMiddleware(plain, max_body_bytes=3)) as url:
        assert httpx.post(url, content=b"abc").content == b"cba"
        assert httpx.post(url, content=b"abcd").status_code == 413


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": "0.0.0.0"}, "without keys anybody could use it"),
        ({"keys": Path("no_such.json")}, "no_such.json: No such file"),
        ({"keys": Path("empty.json")}, "empty.json: holds no key"),
        ({"keys": Path("broken.json")}, "broken.json: not a file of keys"),
        ({"requests_per_minute": 0.0}, "--requests-per-minute 0: 1 or more"),
        ({"requests_at_once": 0}, "--requests-at-once 0: 1 or more"),
        ({"requests_at_once": 4}, "it has no effect without --keys"),
        ({"max_body_mb": 0.0}, "--max-body-mb 0"),
        ({"audit_log": Path("no_folder/log")}, "there is no folder no_folder"),
    ],
)
def test_bad_options(service: Any, tmp_path: Path, monkeypatch, options: dict, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.json").write_text("{}")
    Path("broken.json").write_text('{"alice": "key"}')
    with pytest.raises(SparringError, match=r"^[^\n]+$") as error:
        service(**options)
    assert message in str(error.value)


def test_keys_by_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.chdir(tmp_path)
    web_keys.main(["add", "alice"])
    key = capsys.readouterr().out.strip()
    assert web_keys.Keyring(Path("keys.json")).name_of(key) == "alice"
    for arguments, message in (
        (["add", "alice"], "'alice' has a key"),
        (["add", "a b"], "1 to 64 letters"),
        (["remove", "bob"], "there are alice"),
    ):
        with pytest.raises(SystemExit) as ended:
            web_keys.main(arguments)
        assert ended.value.code == 2 and message in capsys.readouterr().err
    web_keys.main(["list"])
    assert capsys.readouterr().out.startswith("alice 20")
