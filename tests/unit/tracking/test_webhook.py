"""Who is told of a run's alarms and its end, by real requests."""

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from configs.load import ConfigError, load_run
from core.evaluation import hacking_alarm
from tracking.writers import TrackedRun, open_writers


class Told(HTTPServer):
    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.heard: list[dict] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook/secret"


class Answer(BaseHTTPRequestHandler):
    server: Told

    def do_POST(self) -> None:
        self.server.heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Told]:
    with Told() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def run(directory: Path, hook: Told) -> TrackedRun:
    return TrackedRun(
        directory=directory,
        name="r1",
        project=None,
        mlflow_uri=None,
        webhook=hook.url,
        settings={"evaluation.gap_alarm": 0.3},
        environment={},
        done=-1,
    )


def test_an_alarm_and_the_end_are_told_and_nothing_else(hook: Told, tmp_path: Path) -> None:
    with open_writers(["webhook"], run(tmp_path, hook)) as writers:
        assert "secret" not in "".join(writers.where)
        writers.metrics(1, {"held_out/proxy_gold_gap": 0.2})
        writers.metrics(2, {"held_out/proxy_gold_gap": 0.4})
        writers.text(2, "sample", "text")
    assert [(told["event"], told["step"]) for told in hook.heard] == [("alarm", 2), ("finished", 2)]
    assert hook.heard[0]["text"] == f"r1: {hacking_alarm(0.4, 0.3)}"


@pytest.mark.parametrize(("error", "event"), [(RuntimeError, "failed"), (KeyboardInterrupt, "killed")])
def test_a_run_that_breaks_is_told_as_well(hook: Told, tmp_path: Path, error, event) -> None:
    with pytest.raises(error), open_writers(["webhook"], run(tmp_path, hook)):
        raise error
    assert [told["event"] for told in hook.heard] == [event]


def test_a_hook_that_fails_ends_no_run(hook: Told, tmp_path: Path, caplog) -> None:
    hook.status = 500
    with caplog.at_level(logging.WARNING), open_writers(["webhook"], run(tmp_path, hook)):
        pass
    assert "tracking.to webhook: no more is written there" in caplog.text
    assert "127.0.0.1 answers 500" in caplog.text and "secret" not in caplog.text


def test_an_alarm_that_does_not_get_there_leaves_the_end_to_be_told(
    hook: Told, tmp_path: Path, caplog
) -> None:
    with caplog.at_level(logging.WARNING), open_writers(["webhook"], run(tmp_path, hook)) as writers:
        hook.status = 503
        writers.metrics(1, {"held_out/proxy_gold_gap": 0.4})
        hook.status = 200
    assert [told["event"] for told in hook.heard] == ["alarm", "finished"]
    assert "the alarm of step 1 is not told: 127.0.0.1 answers 503" in caplog.text


def test_a_hook_where_nobody_listens_is_said_without_its_url(hook: Told, tmp_path: Path, caplog) -> None:
    discard = replace(run(tmp_path, hook), webhook="http://127.0.0.1:9/hook/secret")  # nobody listens
    with caplog.at_level(logging.WARNING), open_writers(["webhook"], discard):
        pass
    assert "127.0.0.1 does not answer (ConnectError)" in caplog.text and "secret" not in caplog.text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tracking.to", "webhook"], "give both or neither"),
        (["--tracking.webhook", "http://localhost/x"], "give both or neither"),
        (["--tracking.to", "webhook", "--tracking.webhook", "localhost"], "expected a URL of http or https"),
    ],
)
def test_a_hook_without_an_address_is_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_run(arguments)
