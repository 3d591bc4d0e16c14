"""Who is told of a run's alarms and its end, by real requests."""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from configs.load import ConfigError, load_run
from sparring.core.errors import SparringError
from sparring.core.evaluation import hacking_alarm
from sparring.tracking.writers import TrackedRun, open_writers
from sparring.web.guard import Receive, Send
from tests.serving import served
from tests.trackers import tracked


@dataclass
class Hook:
    status: int = 200
    heard: list[dict] = field(default_factory=list)

    async def __call__(self, scope: dict, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.heard.append(await Request(scope, receive).json())
            await Response(status_code=self.status)(scope, receive, send)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    hook = Hook()
    with served(hook) as url:
        monkeypatch.setenv("HOOK_URL", f"{url}/hook/secret")
        yield hook


def run(directory: Path) -> TrackedRun:
    return tracked(directory, webhook="HOOK_URL", settings={"evaluation.gap_alarm": 0.3})


def test_an_alarm_and_the_end_are_told_and_nothing_else(hook: Hook, tmp_path: Path) -> None:
    with open_writers(["webhook"], run(tmp_path)) as writers:
        assert "secret" not in "".join(writers.where)
        writers.metrics(1, {"held_out/proxy_gold_gap": 0.2})
        writers.metrics(2, {"held_out/proxy_gold_gap": 0.4})
        writers.text(2, "sample", "text")
    assert [(told["event"], told["step"]) for told in hook.heard] == [("alarm", 2), ("finished", 2)]
    assert hook.heard[0]["text"] == f"mine: {hacking_alarm(0.4, 0.3)}"


@pytest.mark.parametrize(("error", "event"), [(RuntimeError, "failed"), (KeyboardInterrupt, "killed")])
def test_a_run_that_breaks_is_told_as_well(hook: Hook, tmp_path: Path, error, event) -> None:
    with pytest.raises(error), open_writers(["webhook"], run(tmp_path)):
        raise error
    assert [told["event"] for told in hook.heard] == [event]


def test_a_hook_that_fails_ends_no_run(hook: Hook, tmp_path: Path, caplog) -> None:
    hook.status = 500
    with caplog.at_level(logging.WARNING), open_writers(["webhook"], run(tmp_path)):
        pass
    assert "tracking.to webhook: no more is written there" in caplog.text
    assert "127.0.0.1 answers 500" in caplog.text and "secret" not in caplog.text


def test_an_alarm_that_does_not_get_there_leaves_the_end_to_be_told(hook: Hook, tmp_path: Path, caplog):
    with caplog.at_level(logging.WARNING), open_writers(["webhook"], run(tmp_path)) as writers:
        hook.status = 503
        writers.metrics(1, {"held_out/proxy_gold_gap": 0.4})
        hook.status = 200
    assert [told["event"] for told in hook.heard] == ["alarm", "finished"]
    assert "the alarm of step 1 is not told: 127.0.0.1 answers 503" in caplog.text


def test_a_hook_where_nobody_listens_is_said_without_its_url(tmp_path: Path, caplog, monkeypatch) -> None:
    monkeypatch.setenv("HOOK_URL", "http://127.0.0.1:9/hook/secret")  # discard: nobody listens
    with caplog.at_level(logging.WARNING), open_writers(["webhook"], run(tmp_path)):
        pass
    assert "127.0.0.1 does not answer (ConnectError)" in caplog.text and "secret" not in caplog.text


@pytest.mark.parametrize(
    ("to", "hook", "said"),
    [
        ("webhook", None, "give both or neither"),
        (None, "HOOK_URL", "give both or neither"),
        ("webhook", "http://localhost/hush", "webhook: expected the name of an environment variable"),
    ],
)
def test_a_hook_that_is_not_named_or_is_no_name_is_refused(to: str | None, hook: str | None, said: str):
    """Its URL is a secret, and settings are kept in config.yaml, in checkpoints, in sweep.json."""
    given = {"--tracking.to": to, "--tracking.webhook": hook}
    with pytest.raises(ConfigError, match=said) as refused:
        load_run([word for option, value in given.items() if value for word in (option, value)])
    assert "hush" not in str(refused.value)


def test_a_url_may_end_in_a_new_line_as_in_files_of_secrets(hook: Hook, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOOK_URL", os.environ["HOOK_URL"] + "\n")
    with open_writers(["webhook"], run(tmp_path)):
        pass
    assert [told["event"] for told in hook.heard] == ["finished"]


@pytest.mark.parametrize("url", [None, "", "localhost/hush", "http://a:port/hush"])
def test_a_variable_that_holds_no_url_refuses_the_run(tmp_path: Path, monkeypatch, url: str | None) -> None:
    if url is not None:
        monkeypatch.setenv("HOOK_URL", url)
    said = r"HOOK_URL: .* holds no URL of http or https"
    with pytest.raises(SparringError, match=said) as refused, open_writers(["webhook"], run(tmp_path)):
        raise AssertionError
    assert "hush" not in str(refused.value)
