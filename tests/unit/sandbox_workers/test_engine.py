"""A Docker Engine that answers, but has not what a sandbox needs."""

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from sandbox_workers.backends import choose_backend, image_tag
from sandbox_workers.docker_backend import DockerBackend
from sandbox_workers.jobs import SandboxUnavailable

ANSWERS = {"version": {"ApiVersion": "1.44"}, "_ping": "OK"}


class NoImages(BaseHTTPRequestHandler):
    """An engine without images, as the Docker SDK asks it."""

    def do_GET(self) -> None:
        asked = self.path.rpartition("/")[2]
        body = json.dumps(ANSWERS.get(asked, {"message": "No such image"})).encode()
        self.send_response(200 if asked in ANSWERS else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@pytest.fixture
def empty_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with Server(str(tmp_path / "engine.sock"), NoImages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine.sock")
        yield
        server.shutdown()


@pytest.mark.parametrize(
    "ask",
    [lambda: choose_backend("docker"), lambda: DockerBackend(image=image_tag()).start()],
    ids=["at first", "later"],
)
def test_docker_without_the_image_says_how_to_build_it(empty_engine: None, ask: Callable[[], object]) -> None:
    with pytest.raises(SandboxUnavailable, match=f"no image {image_tag()}.*make image"):
        ask()


def test_auto_goes_on_to_what_needs_no_image_and_says_why(empty_engine: None) -> None:
    choice = choose_backend("auto", trusted=True)
    assert choice.kind != "docker" and image_tag() in choice.description


def test_a_socket_that_nobody_serves_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(SandboxUnavailable, match=f"{tmp_path}/none.sock .No such file.*make engine"):
        choose_backend("docker")
