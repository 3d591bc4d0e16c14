"""Starts driver.py as a user would, and checks that everything that it starts also ends."""

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from lab.problems import toy_problems
from sandbox_workers.jobs import SandboxUnavailable
from sparring.core.play import POLICIES
from sparring.core.project_files import EXAMPLES
from sparring.problems.loader import load_problems
from tests.datasets import problem_file

# A process that a shell starts in the background ignores Ctrl-C, and so would all processes that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[2]
_PR_SET_CHILD_SUBREAPER = 36
ROLES = ("generator", "discriminator")
# The debug recipe in six steps.
SHORT = (
    "--curriculum.n-discriminator-steps", "1", "--curriculum.n-generator-steps", "1",
    "--curriculum.problems-per-step", "4", "--curriculum.attempts", "4", "--curriculum.frozen-programs", "2",
    "--evaluation.problems", "12", "--evaluation.suites", "1", "--credit.kind", "stage",
)  # fmt: skip


@dataclass
class Ended:
    code: int
    out: str
    err: str
    seconds: float


IMPORTED = """
import json, os, sys
from sparring.runtime.logs import quiet_logs
quiet_logs()
import torch, transformers.models.auto.auto_factory, transformers.models.qwen2.modeling_qwen2
import accelerate, matplotlib.figure
import driver, sparring.runtime.local, actors.transformers_policy
for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.environ.clear()
        os.environ.update(asked["environment"])
        for stream, path in enumerate((os.devnull, asked["out"], asked["err"])):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), stream)
        sys.argv = ["driver.py", *asked["arguments"]]
        sys.exit(driver.main(asked["arguments"]))
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class ForkedRun:
    """A run of ImportedDriver, with the methods of a Popen that tests call."""

    def __init__(self, pid: int, args: Sequence[str], said: IO[bytes]) -> None:
        """said: where the exit code will stand."""
        self.pid, self.args, self._said = pid, args, said
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._read(0)

    def wait(self, timeout: float | None = None) -> int:
        if (code := self._read(timeout)) is None:
            raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
        return code

    def _read(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._said], [], [], seconds)[0]:
            self.returncode = int(self._said.readline())
        return self.returncode


class ImportedDriver:
    """Runs driver.py in a fork of a process that has imported torch and transformers: these imports take nine of the
    ten seconds of a run that is refused. One run at a time."""

    def __init__(self, environment: Mapping[str, str], directory: Path) -> None:
        self._environment, self._directory = environment, directory
        self.process = subprocess.Popen(
            [sys.executable, "-c", IMPORTED],
            cwd=ROOT,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # ForkedRun waits for a line that no buffer may have
        )
        self.known = (self.process.pid, psutil.Process(self.process.pid).create_time())
        """The process as an entry of Drive.before."""
        self._last: ForkedRun | None = None

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], out: Path, err: Path
    ) -> ForkedRun:
        assert self.process.stdin is not None and self.process.stdout is not None
        if self._last is not None:
            self._last.wait(30)
        for file in (out, err):
            file.write_text("")  # it is there at once
        asked = {"arguments": arguments, "environment": dict(environment), "out": str(out), "err": str(err)}
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._last = ForkedRun(int(self.process.stdout.readline()), arguments, self.process.stdout)
        return self._last

    def run(self, *arguments: object, timeout: float, **environment: str) -> Ended:
        began, out, err = time.monotonic(), self._directory / "out", self._directory / "err"
        started = self.start([*map(str, arguments)], {**self._environment, **environment}, out, err)
        try:
            code = started.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            code = started.wait(30)
        return Ended(code, out.read_text(), err.read_text(), time.monotonic() - began)


@dataclass
class Drive:
    """The runs of one test. `run` waits for the end; `start` leaves the process to the test."""

    environment: Mapping[str, str]
    directory: Path
    names: list[str] = field(default_factory=list)
    started: list[subprocess.Popen[Any] | ForkedRun] = field(default_factory=list)
    before: set[tuple[int, float]] = field(default_factory=set)
    """Processes that ran before the test."""
    imported: ImportedDriver | None = None
    """Starts the runs, if they are not to start as a user's would."""

    def name(self) -> str:
        """Returns a run name that no other run has; the run's containers carry it."""
        self.names.append(f"test-{uuid.uuid4().hex[:10]}")
        return self.names[-1]

    def start(
        self, *arguments: object, place: Sequence[str] = (), **environment: str
    ) -> subprocess.Popen[str] | ForkedRun:
        """Starts a run. Its output goes to files, since processes that outlive it would hold a pipe open. `place` is a
        command that runs another one, here the driver."""
        number = len(self.started)
        if self.imported is not None:
            assert not place
            files = self._file(number, "out"), self._file(number, "err")
            words, variables = [*map(str, arguments)], {**self.environment, **environment}
            self.started.append(self.imported.start(words, variables, *files))
            return self.started[-1]
        with self._file(number, "out").open("w") as out, self._file(number, "err").open("w") as err:
            process = subprocess.Popen(
                [*place, sys.executable, "driver.py", *map(str, arguments)],
                cwd=ROOT,
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                text=True,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def run(
        self, *arguments: object, timeout: float = 500, place: Sequence[str] = (), **environment: str
    ) -> Ended:
        began = time.monotonic()
        process = self.start(*arguments, place=place, **environment)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            ended = self.ended(process, timeout)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the next run may wait for its end
            pytest.fail(f"driver.py {arguments} took over {timeout} s:\n{ended.out}\n{ended.err}")
        return self.ended(process, time.monotonic() - began)

    def ended(self, process: subprocess.Popen[str] | ForkedRun, seconds: float = 0.0) -> Ended:
        number = self.started.index(process)
        code = process.returncode if process.returncode is not None else -1
        return Ended(
            code, self._file(number, "out").read_text(), self._file(number, "err").read_text(), seconds
        )

    def kill_at_step(self, step: int, run: Path, *arguments: object, timeout: float = 500) -> Ended:
        """Starts a run, and sends SIGKILL to its whole process group once its metrics show the step."""
        began = time.monotonic()
        process = self.start(*arguments, "--output-dir", run.parent, "--run-name", run.name)
        while all(row["step"] < step for row in rows_of(run)):
            ended = self.ended(process)
            assert process.poll() is None, f"ended before step {step}: {ended.out}\n{ended.err}"
            assert time.monotonic() - began < timeout, f"step {step} did not come: {ended.out}\n{ended.err}"
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        return self.ended(process, time.monotonic() - began)

    def left(self) -> list[psutil.Process]:
        found = []
        for process in living_children():
            with suppress(psutil.Error):
                if (process.pid, process.create_time()) not in self.before:
                    found.append(process)
        return found

    def expect_nothing_left(self, seconds: float = 30) -> None:
        """Asserts that every process that this test started ends within `seconds`, and that its containers are gone."""
        clean = eventually(lambda: not self.left(), seconds)
        found = (
            [] if clean else [f"{p.pid} {p.name()} {p.cmdline()[:6]}" for p in self.left() if p.is_running()]
        )
        assert clean, f"left running: {found}"
        for name in self.names:
            assert eventually(lambda name=name: containers_of(name) == 0, 15), (
                f"a container of {name} is left"
            )

    def _file(self, number: int, kind: str) -> Path:
        return self.directory / f"{number}.{kind}"


@pytest.fixture(scope="session")
def imported_driver(
    environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ImportedDriver]:
    driver = ImportedDriver(environment, tmp_path_factory.mktemp("imported_driver"))
    yield driver
    driver.process.communicate()


def rows_of(run: Path) -> list[dict[str, Any]]:
    """Returns the complete rows of a run's metrics."""
    file = run / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


TIMING = {"seconds", "tokens_per_s", "sandbox"}
"""What differs in equal runs. sandbox: counters of a cache that a new process begins empty."""


def learned(run: Path) -> list[dict[str, Any]]:
    """Returns the rows of a run's metrics, without what differs in equal runs."""
    return [{k: v for k, v in row.items() if k not in TIMING} for row in rows_of(run)]


def weights_of(run: Path) -> dict[str, bytes]:
    """Returns the weights of a run's last checkpoint, by policy."""
    checkpoint = sorted((run / "checkpoints").glob("step_*"))[-1]
    found = {p.parent.name: p.read_bytes() for p in checkpoint.glob("*/model.safetensors")}
    assert found, checkpoint
    return found


def require_synced(rows: Sequence[Mapping[str, Any]], tolerance: float = 1e-4, lag: int = 0) -> None:
    """Asserts that every step was played with the newest weights of both policies, or with weights that are at most `lag`
    updates older, and that the engines computed the learners' probabilities with them."""
    newest = dict.fromkeys(POLICIES, 0)
    for row in rows[1:]:
        for policy, version in newest.items():
            played = row["weights"].get(policy, {"version": 0, "probe_difference": 0.0})
            assert version - lag <= played["version"] <= version, f"step {row['step']}: {policy}"
            assert played["probe_difference"] < tolerance
            newest[policy] += "samples" in row.get(policy, {})
    assert all(newest.values()), "both learned"


def living_children() -> list[psutil.Process]:
    """Returns all living descendants of this process (orphans too, since it is their subreaper); zombies are reaped on
    the way."""
    alive = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if child.status() != psutil.STATUS_ZOMBIE:
                alive.append(child)
            elif child.ppid() == os.getpid():
                with suppress(ChildProcessError):
                    os.waitpid(child.pid, os.WNOHANG)
    return alive


def containers_of(run: str) -> int:
    from sandbox_workers.docker_backend import RUN_LABEL, connect

    try:
        client = connect()
    except SandboxUnavailable:
        return 0
    return len(client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={run}"}, ignore_removed=True))


def eventually(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yields the user's environment with a cache and a Ray directory of this session (a path in pytest's directory
    would be too long for sockets)."""
    ray_files = tempfile.mkdtemp(prefix="spar-")
    yield {
        **{k: v for k, v in os.environ.items() if not k.startswith("RAY_")},
        "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache")),
        "RAY_TMPDIR": ray_files,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",  # threads that spin for a contended core cost more than they gain
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "160",
    }
    shutil.rmtree(ray_files, ignore_errors=True)


@pytest.fixture(scope="session")
def session_drive(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Drive:
    """A Drive for runs that are made once and read by several tests."""
    return Drive(environment, tmp_path_factory.mktemp("session_drive"))


@pytest.fixture
def drive(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drive]:
    """Yields a Drive. A test that leaves processes or containers behind fails, and they are ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    drive = Drive(environment, tmp_path_factory.mktemp("drive"))
    drive.before = {(p.pid, p.create_time()) for p in living_children()}
    yield drive
    unfinished = [p for p in drive.started if p.poll() is None]
    for process in unfinished:
        os.killpg(process.pid, signal.SIGKILL)
    try:
        drive.expect_nothing_left()
        assert not unfinished, f"did not end: {[p.args for p in unfinished]}"
    finally:
        for process in drive.left():
            with suppress(psutil.Error):
                process.kill()
        eventually(lambda: not drive.left(), 10)
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture
def local_drive(drive: Drive, imported_driver: ImportedDriver) -> Drive:
    """Returns a Drive for runs in one process, which saves them their imports."""
    drive.before.add(imported_driver.known)
    drive.imported = imported_driver
    return drive


@pytest.fixture(scope="session")
def local_session_drive(
    environment: dict[str, str], imported_driver: ImportedDriver, tmp_path_factory: pytest.TempPathFactory
) -> Drive:
    """A Drive for runs in one process that are made once and read by several tests."""
    return Drive(environment, tmp_path_factory.mktemp("session_drive"), imported=imported_driver)


@pytest.fixture(scope="session")
def short() -> tuple[str, ...]:
    """Returns arguments with which the debug recipe has six steps."""
    return SHORT


@pytest.fixture(scope="session")
def models() -> dict[str, str]:
    """Returns the toy models by role."""
    return {role: str(EXAMPLES / "toy" / role) for role in ROLES}


@pytest.fixture(scope="session")
def small_problems(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Returns (training, held-out) files: a part of the toy problems, so that their references run quickly."""
    directory = tmp_path_factory.mktemp("problems")
    train = problem_file(directory / "train.json", toy_problems("train")[:24])
    return train, problem_file(directory / "held_out.json", toy_problems("held_out")[:8])


@pytest.fixture(scope="session")
def small(models: dict[str, str], small_problems: tuple[Path, Path]) -> tuple[str, ...]:
    """Returns arguments for a run of seconds: shipped models by path, few problems."""
    train, held_out = small_problems
    return (
        *SHORT,
        "--generator-model", models["generator"],
        "--discriminator-model", models["discriminator"],
        # a model by path would have bfloat16 on a CPU that computes in it
        "--generator.engine.dtype", "float32",
        "--discriminator.engine.dtype", "float32",
        "--problems-file", str(train),
        "--problems.held-out.file", str(held_out),
        "--evaluation.problems", "6",
        "--checkpoint.every", "2",
        # few attempts often earn the same: let them learn from it nevertheless
        "--no-generator.learner.estimator.center-rewards",
        "--no-discriminator.learner.estimator.center-rewards",
    )  # fmt: skip


@pytest.fixture(scope="session")
def finished(
    local_session_drive: Drive, small: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Returns the directory of a small finished local run. Tests only read it; a test that changes it makes a copy."""
    run = tmp_path_factory.mktemp("finished") / local_session_drive.name()
    done = local_session_drive.run(
        "--config", "debug", *small, "--output-dir", run.parent, "--run-name", run.name
    )
    assert done.code == 0, done.err
    return run


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a random model with a real chat template: its answers make no sense, but it passes through the whole
    pipeline."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from lab.model import build_tokenizer

    directory = tmp_path_factory.mktemp("chat_model")
    texts = [
        f"{p.description} {p.reference_solution}"
        for p in load_problems(ROOT / "sparring" / "problems" / "example_problems.json")
    ]
    markers = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = build_tokenizer(texts, markers, "<|endoftext|>", "<|im_end|>")
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    tokenizer.model_max_length = 8192
    tokenizer.save_pretrained(directory)
    ids = tokenizer.get_vocab()
    config = Qwen2Config(
        vocab_size=(len(tokenizer) + 15) // 16 * 16,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=128,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        eos_token_id=ids["<|im_end|>"],
        pad_token_id=ids["<|endoftext|>"],
    )
    Qwen2ForCausalLM(config).save_pretrained(directory)
    return directory
