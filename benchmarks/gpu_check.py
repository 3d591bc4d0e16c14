"""Tries on a GPU what could only be planned without one, in ten minutes.

    python -m benchmarks.gpu_check --model DIR --json gpu.json                  on a machine with a GPU
    python -m benchmarks.gpu_check --model DIR --device cpu --json cpu.json     the same parts, as far as a CPU goes

--model is a chat model of about 0.5B parameters. Each part is a process with a time limit, and the result is written after
each part, so that nothing is lost if the machine goes away. A part whose packages are missing is skipped by name; without
vLLM the run uses the transformers engine. The order is by worth: what has never run on a GPU comes first.

tests: tests/gpu. plan, run: two policies by LoRA for three steps; the memory that the plan counted, and the most that the GPU
held. contracts: weights and adapters in vLLM against the learner. learner: speed against a bare loop, in full and by LoRA;
prime-rl publishes 11,900 tokens/s in full and 13,340 by LoRA for Qwen3-0.6B on one H100.
"""

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.report import ROOT, arguments, write

_TAIL = 2000
"""Number of characters of a part's output that are kept."""
_LOOK_S = 0.25
_ROLES = ("generator", "discriminator")


class CheckPart(NamedTuple):
    name: str
    command: list[str]
    limit_s: int
    needs: tuple[str, ...] = ()
    """Modules without which the part is skipped."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--model", default="smollm2", help="directory, GGUF file or hub id")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--seconds", type=int, default=570, help="time for all parts")
    parser.add_argument("--parts", nargs="+", help="names of parts; default: all")
    parser.add_argument(
        "--peak-tflops", type=float, default=989, help="of the GPU in bfloat16, dense; an H100"
    )
    options = parser.parse_args()
    if options.quick:
        options.device, options.parts = "cpu", ["plan", "learner_toy_full"]
    end = time.monotonic() + options.seconds
    figures: dict[str, Any] = {"device": options.device}
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as directory:
        for part in parts(options, Path(directory)):
            if options.parts and not any(part.name.startswith(name) for name in options.parts):
                continue
            print(f"{part.name} ...", flush=True)
            figures[part.name] = found = tried(part, end, Path(directory))
            print(f"{part.name}: {found['ended']}, {found.get('seconds', 0):.0f} s", flush=True)
            write(options.json, figures, {})


def parts(options: argparse.Namespace, directory: Path) -> Iterator[CheckPart]:
    python, cuda = sys.executable, options.device == "cuda"
    pytest = [python, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    yield CheckPart("tests", [*pytest, "tests/gpu"], 150, ("pytest",))
    engine = "vllm" if importlib.util.find_spec("vllm") else "transformers"
    run = ["--output-dir", str(directory), "--run-name", "run", "--local", "--device", options.device]
    run += ["--n-discriminator-steps", "0", "--n-generator-steps", "0", "--k-alternating-steps", "3"]
    run += [
        "--game.stages",
        "0",
        "--no-evaluation.enabled",
        "--curriculum.problems-per-step",
        "4" if cuda else "2",
    ]
    for role in _ROLES:
        run += [f"--{role}.model", options.model, f"--{role}.engine.kind", engine]
        run += [f"--{role}.max-tokens", "256" if cuda else "16"]
    driver = [python, "driver.py", "--config", "single_gpu:16gb", *run]
    yield CheckPart("plan", [*driver, "--plan"], 60)
    yield CheckPart("run", driver, 200)
    contracts = ["tests/contracts/test_policy_contract.py", "tests/contracts/test_adapters.py"]
    yield CheckPart("contracts", [*pytest, *contracts], 120, ("pytest", "vllm"))
    learner = [python, "-m", "benchmarks.learner", "--device", options.device, "--repeats", "5"]
    if not cuda:
        learner.append("--quick")
    for shape in ("qwen_0_5b", "qwen_1_5b") if cuda else ("toy",):
        for kind, more in (("full", []), ("lora", ["--lora", "16"])):
            name = f"learner_{shape}_{kind}"
            command = [*learner, *more, "--shape", shape, "--json", str(directory / f"{name}.json")]
            if cuda:
                command += ["--precision", "bf16", "--microbatch-tokens", "16384", "--checkpointing"]
                command += ["--peak-tflops", str(options.peak_tflops)]
            yield CheckPart(name, command, 90)


def tried(part: CheckPart, end: float, directory: Path) -> dict[str, Any]:
    """Runs a part. Returns how it ended, its seconds, the most memory that the GPU held, and what it found."""
    missing = [name for name in part.needs if importlib.util.find_spec(name) is None]
    left = min(float(part.limit_s), end - time.monotonic())
    if missing or left <= 0:
        return {"ended": f"skipped: no {', '.join(missing)}" if missing else "skipped: no time left"}
    began = time.monotonic()
    with most_memory() as held:
        process = subprocess.Popen(
            part.command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=left)
            ended = "passed" if process.returncode == 0 else f"failed with code {process.returncode}"
        except subprocess.TimeoutExpired:
            stop(process)
            output, _ = process.communicate()
            ended = f"not done in {left:.0f} s"
    found = {"ended": ended, "seconds": time.monotonic() - began, "tail": output[-_TAIL:]}
    if held:
        found["gpu_held_mib"] = max(held)
    with suppress(OSError):
        found["figures"] = json.loads((directory / f"{part.name}.json").read_text())
    if planned := re.search(r"memory of the GPU: ([\d.]+) of", output):
        found["planned_gb"] = float(planned[1])
    if part.name == "run":
        found["steps"] = steps_of(directory / "run")
    return found


def stop(process: subprocess.Popen[str]) -> None:
    """Ends a part with all processes that it has started."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            with suppress(psutil.NoSuchProcess):
                one.kill()


def steps_of(run: Path) -> list[dict[str, Any]]:
    """Returns what each step of a run measured."""
    try:
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    except OSError:
        return []
    keys = ("mismatch_max", "samples")
    return [
        {"seconds": row["seconds"], "tokens_per_s": row["tokens_per_s"], "weights": row["weights"]}
        | {role: {key: row[role].get(key) for key in keys} for role in _ROLES if role in row}
        for row in rows
        if "seconds" in row
    ]


@contextmanager
def most_memory() -> Iterator[list[int]]:
    """Yields a list to which the memory that the first GPU holds, in MiB, is added while the block runs."""
    held: list[int] = []
    ended = threading.Event()
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]

    def look() -> None:
        with suppress(OSError, ValueError, subprocess.SubprocessError):  # there is no GPU
            while not ended.wait(_LOOK_S):
                held.append(int(subprocess.check_output(command, text=True, timeout=10)))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield held
    finally:
        ended.set()
        watcher.join()


if __name__ == "__main__":
    main()
