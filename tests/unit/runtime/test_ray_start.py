"""How each command starts Ray, or joins a cluster; Ray itself is a stand-in."""

import argparse
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray

from configs.schema import Config
from sparring.cli import serve
from sparring.core.errors import SparringError
from sparring.runtime import cluster
from sparring.runtime.ray_start import keep_socket_paths_short
from sparring.sweeps import tuning
from sparring.sweeps.spec import Replicate, Setting, Sweep


class Begun(Exception):
    """The command went on after Ray's start."""


def drive() -> None:
    cluster.connect(Config())
    raise Begun


def serve_models() -> None:
    with serve.on_ray(argparse.Namespace(host="127.0.0.1", port=8000, device="cpu", threads=1)):
        pass


def sweep() -> None:
    one = Sweep(
        kind="grid",
        config="debug",
        settings=(Setting(name="a", keys={}),),
        replicates=(Replicate(name="b", seed=1),),
    )
    tuning.run_sweep(one, Path("nowhere"), 1, 0)


COMMANDS = [drive, serve_models, sweep]


class Rays:
    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.ended = 0
        self.late = 0

    def init(self, **options: Any) -> None:
        self.asked.append(options)
        if len(self.asked) <= self.late:
            raise Exception("The current node timed out during startup.")

    def shutdown(self) -> None:
        self.ended += 1


@pytest.fixture
def rays(monkeypatch: pytest.MonkeyPatch) -> Rays:
    def begin(*arguments: Any, **options: Any) -> None:
        raise Begun

    found = Rays()
    monkeypatch.setattr(os, "environ", {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"})
    monkeypatch.setattr(cluster, "_store_bytes", lambda config: 1)
    monkeypatch.setattr(ray, "init", found.init)
    monkeypatch.setattr(ray, "shutdown", found.shutdown)
    monkeypatch.setattr("ray.serve.start", begin)
    monkeypatch.setattr("ray.serve.shutdown", lambda: None)
    monkeypatch.setattr(tuning.shutil, "rmtree", begin)
    return found


@pytest.mark.parametrize("late", [0, 2, 3])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_machine_too_busy_for_rays_half_minute_has_it_three_times(
    rays: Rays, command: Callable[[], None], late: int
) -> None:
    rays.late = late
    with pytest.raises(SparringError if late == 3 else Begun) as ended:
        command()
    assert len(rays.asked) == min(late + 1, 3) and rays.ended >= late
    assert all(options["address"] == "local" for options in rays.asked)
    if late == 3:
        assert str(ended.value).startswith("Ray does not start on this machine: The current node timed out")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_cluster_is_asked_for_nothing_that_only_a_new_ray_takes(
    rays: Rays, command: Callable[[], None]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        os.environ["RAY_ADDRESS"] = f"127.0.0.1:{head.getsockname()[1]}"
        with pytest.raises(Begun):
            command()
    (options,) = rays.asked
    assert options.keys() <= {"log_to_driver", "logging_level", "runtime_env"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_cluster_that_is_not_there_is_named(rays: Rays, command: Callable[[], None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    os.environ["RAY_ADDRESS"] = f"127.0.0.1:{port}"
    with pytest.raises(SparringError, match=f"RAY_ADDRESS=127.0.0.1:{port}: no cluster answers there"):
        command()
    assert not rays.asked


# ---------------------------------------------------------------------- where it may put its sockets
@pytest.fixture
def no_places(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_TMPDIR", "TMPDIR"):
        monkeypatch.setenv(name, "")  # so that what is set below is taken back
        monkeypatch.delenv(name)


@pytest.mark.parametrize("place", [None, "/tmp", "/scratch/7"])
def test_a_short_path_stays(no_places, place, monkeypatch):
    if place:
        monkeypatch.setenv("TMPDIR", place)
    keep_socket_paths_short()
    assert "RAY_TMPDIR" not in os.environ


@pytest.mark.parametrize("place", ["/scratch/" + "a" * 90, "/tmp/größe"])
def test_another_place_is_chosen_and_said(no_places, place, monkeypatch, capsys):
    monkeypatch.setenv("TMPDIR", place)
    keep_socket_paths_short()
    assert os.environ["RAY_TMPDIR"] == "/tmp" and place in capsys.readouterr().out


def test_a_place_that_was_given_to_ray_is_refused(no_places, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", "/scratch/" + "a" * 90)
    with pytest.raises(SparringError, match="at most 38 ASCII characters"):
        keep_socket_paths_short()
