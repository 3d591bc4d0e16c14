"""Where Ray may put its sockets."""

import os

import pytest

from sparring.core.errors import SparringError
from sparring.runtime.ray_start import keep_socket_paths_short


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_TMPDIR", "TMPDIR"):
        monkeypatch.setenv(name, "")  # so that what is set below is taken back
        monkeypatch.delenv(name)


@pytest.mark.parametrize("place", [None, "/tmp", "/scratch/7"])
def test_a_short_path_stays(place, monkeypatch):
    if place:
        monkeypatch.setenv("TMPDIR", place)
    keep_socket_paths_short()
    assert "RAY_TMPDIR" not in os.environ


@pytest.mark.parametrize("place", ["/scratch/" + "a" * 90, "/tmp/größe"])
def test_another_place_is_chosen_and_said(place, monkeypatch, capsys):
    monkeypatch.setenv("TMPDIR", place)
    keep_socket_paths_short()
    assert os.environ["RAY_TMPDIR"] == "/tmp" and place in capsys.readouterr().out


def test_a_place_that_was_given_to_ray_is_refused(monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", "/scratch/" + "a" * 90)
    with pytest.raises(SparringError, match="at most 38 ASCII characters"):
        keep_socket_paths_short()
