"""Checkpoints in an object store: the client is pyarrow's own, the server moto's, which speaks S3 over HTTP."""

import json
import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest

from learners import mirror
from learners.checkpoints import CheckpointError, CheckpointStore, read_checkpoint
from learners.mirror import Mirror, fetch
from tests.learning import Tokenizer
from tests.s3 import s3_server


class Server:
    """An S3 server with a bucket of one test's own, and what lies in it."""

    def __init__(self, host: str, port: int) -> None:
        self.bucket = f"runs-{uuid.uuid4().hex[:8]}"
        self.query = f"?scheme=http&endpoint_override={host}:{port}&region=us-east-1"
        self.uri = f"s3://{self.bucket}/team{self.query}"
        self.client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
        self.client.create_bucket(Bucket=self.bucket)

    def of(self, *path: str) -> str:
        return f"s3://{'/'.join((self.bucket, 'team', *path))}{self.query}"

    def names(self) -> set[str]:
        """Of all objects that are files."""
        found = self.client.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return {item["Key"] for item in found if not item["Key"].endswith("/")}


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with s3_server() as found:
        yield found


@pytest.fixture
def server(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> Server:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setattr(mirror, "RETRY_PAUSES_S", ())
    return Server(*address)


def saved(run: Path, step: int, keep: int = 2, weights: bytes = b"") -> Path:
    """A checkpoint, as a run saves it."""
    policy = run / "now"
    policy.mkdir(parents=True, exist_ok=True)
    (policy / "model.safetensors").write_bytes(weights or bytes([step]) * 100_000)
    (run / "bank.json").write_text("[1]")
    (run / "metrics.jsonl").write_text("{}")
    state = {"step": step, "parts": {}}
    return CheckpointStore(run / "checkpoints", keep).save(
        step, {"generator": policy}, {"generator": Tokenizer()}, state
    )


def test_what_was_sent_comes_back_whole(server: Server, tmp_path: Path) -> None:
    run = Mirror(server.uri, "one")
    run.check(begins=True)
    for step in (2, 4):
        run.send(saved(tmp_path / "one", step))
    for uri, step in ((server.of("one"), 4), (server.of("one", "step_000002"), 2)):
        found = fetch(uri, tmp_path / "fetched")
        assert found == tmp_path / "fetched" / "one" / "checkpoints" / f"step_{step:06d}"
        assert read_checkpoint(found)["step"] == step
        assert (found / "generator" / "model.safetensors").read_bytes() == bytes([step]) * 100_000
        assert (found / "generator" / "tokenizer.json").is_file()
        assert (found.parent.parent / "bank.json").read_text() == "[1]"
        assert not (found.parent.parent / "metrics.jsonl").exists(), (
            "it would be taken for the latest run here"
        )


def test_what_is_here_already_is_left_to_who_reads_it(server: Server, tmp_path: Path) -> None:
    run = Mirror(server.uri, "one")
    run.send(saved(tmp_path / "one", 2))
    with ThreadPoolExecutor(4) as several:
        found = set(several.map(lambda _: fetch(server.of("one"), tmp_path / "fetched"), range(4)))
    (place,) = found
    assert read_checkpoint(place)["step"] == 2
    weights = place / "generator" / "model.safetensors"
    first = weights.stat().st_ino
    assert fetch(server.of("one"), tmp_path / "fetched") == place and weights.stat().st_ino == first
    shutil.rmtree(tmp_path / "one")
    run.send(saved(tmp_path / "one", 2, weights=b"another"))
    assert fetch(server.of("one"), tmp_path / "fetched") == place and weights.stat().st_ino != first
    assert {path.name for path in place.parent.parent.iterdir()} == {"bank.json", "checkpoints"}


def test_a_pruned_checkpoint_is_forgotten(server: Server, tmp_path: Path) -> None:
    run, store = Mirror(server.uri, "one"), CheckpointStore(tmp_path / "one" / "checkpoints", keep=1)
    for step in (1, 2):
        run.send(saved(tmp_path / "one", step))
    assert any("step_000001" in name for name in server.names())
    store.prune(set())
    run.match(store.root)
    found = server.client.list_objects_v2(Bucket=server.bucket)["Contents"]  # markers of directories, too
    assert {item["Key"].split("/")[2] for item in found if "step_" in item["Key"]} == {"step_000002"}


def test_the_manifest_goes_up_last_and_what_has_none_is_no_checkpoint(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Mirror(server.uri, "one")
    run.send(saved(tmp_path / "one", 1))
    second = saved(tmp_path / "one", 2)
    manifest = second / "manifest.json"
    kept = json.loads(manifest.read_text())
    manifest.unlink()
    manifest.symlink_to(tmp_path / "nowhere")  # the last part fails, as a connection that breaks
    with pytest.raises(OSError):
        run.send(second)
    assert "team/one/step_000002/state.json" in server.names(), "the others had gone up before it"
    assert fetch(server.of("one"), tmp_path / "fetched").name == "step_000001"
    with pytest.raises(CheckpointError, match="neither a whole checkpoint nor a run that has one"):
        fetch(server.of("one", "step_000002"), tmp_path / "fetched")
    manifest.unlink()
    manifest.write_text(json.dumps(kept))
    run.send(second)
    assert read_checkpoint(fetch(server.of("one"), tmp_path / "fetched"))["step"] == 2


def test_an_older_checkpoint_of_the_same_step_is_replaced_whole(server: Server, tmp_path: Path) -> None:
    run = Mirror(server.uri, "one")
    first = saved(tmp_path / "one", 1)
    (first / "generator" / "extra.json").write_text("{}")
    run.send(first)
    run.send(saved(tmp_path / "one", 1))
    assert not any("extra.json" in name for name in server.names())


def test_a_bucket_that_is_not_there_is_refused_at_once(server: Server) -> None:
    uri = f"s3://nothing/of{server.query}"
    with pytest.raises(CheckpointError, match=r"checkpoint.mirror s3://nothing/of"):
        Mirror(uri, "one").check(begins=True)
    with pytest.raises(CheckpointError, match="the address has the form"):
        fetch(uri, Path("/nonexistent"))


@pytest.mark.parametrize("uri", ["s4://runs/team", "s3://runs/team?no_such_option=1"])
def test_an_address_that_is_none_is_refused(uri: str) -> None:
    with pytest.raises(CheckpointError, match="the address has the form"):
        Mirror(uri, "one")


def test_a_directory_is_a_store_too(tmp_path: Path) -> None:
    """An NFS path, as file://."""
    run = Mirror(f"file://{tmp_path / 'nfs'}", "one")
    run.check(begins=True)
    assert not (tmp_path / "nfs" / "one").exists(), "a plan leaves nothing behind"
    run.send(saved(tmp_path / "one", 3))
    found = fetch(f"file://{tmp_path / 'nfs' / 'one'}", tmp_path / "fetched")
    assert read_checkpoint(found)["step"] == 3


def test_a_run_that_begins_does_not_take_the_place_of_another(server: Server, tmp_path: Path) -> None:
    first = Mirror(server.uri, "one")
    server.client.put_object(Bucket=server.bucket, Key="team/one/step_000001/manifest.json", Body=b"{}")
    first.check(begins=False)
    with pytest.raises(CheckpointError, match=r"holds checkpoints of a run one, .* give another --run-name"):
        first.check(begins=True)
    Mirror(server.uri, "two").check(begins=True)
