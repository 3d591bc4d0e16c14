"""The supervisor's part for a program in any language: it is built once, run anew for each test, and its output is
returned.

The output that a test expects stays with the host. So there is only one process, and nothing in it is worth forging.
"""

import contextlib
import json
import os
import re
import shlex
import socket
import sys

from .child import Child, ZygoteGone
from .command import as_bytes
from .framing import MAX_FRAME, pack
from .judged import REFUSED, Judged
from .round import Round
from .stop import MOST_RETRIES, Stop
from .zygote import Settings

BUILD_FACTOR = 5
"""Factor by which a compiler may use more CPU and wall-clock time than a test."""
BUILD_PROCESSES, BUILD_FILE_MB = 16, 16


class CommandRound(Round):
    """One run of a command, from its start to its end."""

    def execute(self, command: list[str], environment: dict, content: dict, keep: bool) -> Judged:
        """Runs the command to its end.

        Args:
            content: the `files` and `stdin` of the run.
            keep: whether the files that it leaves in its directory stay there.
        """
        frame = pack(content)
        if len(frame) > MAX_FRAME:
            return Judged("SANDBOX_ERROR", error=f"files and stdin are {len(frame)} bytes, above {MAX_FRAME}")
        self.program = Child(
            self._zygote,
            "program",
            self._settings,
            self.limits,
            streams=("stdout", "stderr"),
            command=command,
            environment=environment,
            keep=keep,
        )
        self._start_clock(self.program)
        try:
            self.program.control.settimeout(self.limits["wall_s"])
            with contextlib.suppress(OSError):  # the child is dead, as its exit code shows
                self.program.control.sendall(frame)
            self._watch(self._sources())
            self._flush()
            stop = self.stop = self.stop or self._end()
        finally:
            used_s = self.program.finish(b"end" if self.program.end is not None else b"kill")
        resident_mb = self._memory_bytes() / (1 << 20)
        if stop.status == "PASSED" and used_s > self.limits["cpu_s"]:
            stop = Stop("TIME_LIMIT", f"it and what it started used {used_s:.2g} s of CPU")
        elif stop.status == "PASSED" and resident_mb > self._most_resident_mb():
            stop = Stop("MEMORY_LIMIT", f"{resident_mb:.0f} MiB were resident")
        return self.judged(stop)._replace(cpu_ms=round(used_s * 1e3, 3))

    def _is_over(self) -> bool:
        return self.stop is not None or self.program.end is not None

    def _end(self, when: str = "") -> Stop:
        ended_well = self.program.end is not None and self.program.end[0] == 0
        return Stop("PASSED", "") if ended_well else super()._end(when)


class Commands:
    """Judges the jobs of one slot whose programs are commands."""

    def __init__(self, zygote: socket.socket, settings: Settings) -> None:
        self._zygote, self._settings = zygote, settings

    def judge(self, job: dict) -> list[Judged]:
        """Returns one verdict per test. A test is {"code", "stdin"}; `code` runs after the program and must come to its
        end."""
        language, limits = job["language"], dict(job["limits"])
        heap_mb = str(limits["memory_mb"] * 3 // 4)
        limits["resident_mb"] = limits["memory_mb"] + language["resident_mb"]
        limits["memory_mb"] += language["extra_memory_mb"]
        limits["processes"] = max(limits["processes"], language["processes"])
        verdicts = []
        built, not_built = None, None
        self._retries = 0
        for test in job["tests"]:
            if test["code"] and job["refuses_code"]:
                verdicts.append(REFUSED)
                continue
            if verdicts and verdicts[-1].status == "SANDBOX_ERROR":  # the failure would recur
                verdicts.append(verdicts[-1])
                continue
            token = os.urandom(16).hex()  # `secrets` would load `random` before the zygote does
            way, files = prepared(language, job["program"], test["code"], token)
            command, uses = [part.replace("{heap_mb}", heap_mb) for part in way["run"]], limits
            if command[0] == "python3":  # the one in PATH may be another than that of Python tests
                command[0] = sys.executable
            if way["build"]:
                if files != built:
                    built, not_built = files, self._build(way["build"], language, limits, files)
                if not_built is not None:
                    verdicts.append(not_built)
                    continue
                if self._settings.isolation == "namespaces":  # the build is lost with its mount
                    script = f"{shlex.join(way['build'])} && exec {shlex.join(command)}"
                    command, uses = ["sh", "-c", script], build_limits(language, limits)
                else:
                    files = {}
            verdict = self._execute(command, language, uses, files, test["stdin"], keep=not files)
            if way is not language:
                verdict = check_end(verdict, token)
            verdicts.append(verdict)
        self._wipe()
        return verdicts

    def _build(self, command: list[str], language: dict, limits: dict, files: dict) -> Judged | None:
        """Builds the program. Returns None, or the verdict if the program does not compile."""
        verdict = self._execute(command, language, build_limits(language, limits), files, "", keep=True)
        if verdict.status == "PASSED":
            return None
        if verdict.status == "RUNTIME_ERROR":
            return verdict._replace(status="SYNTAX_ERROR", error=verdict.stderr[:500] or verdict.error)
        return verdict

    def _execute(
        self, command: list[str], language: dict, limits: dict, files: dict, stdin: str, keep: bool
    ) -> Judged:
        """Runs the command, and runs it a second time if the state of the machine may have been to blame."""
        # stdin and the program's files are written by the job's process
        largest_mb = max(-(-len(as_bytes(text)) >> 20) for text in (stdin, *files.values()))
        limits = limits | {"file_mb": max(limits["file_mb"], largest_mb)}
        content = {"files": files, "stdin": stdin}
        run = CommandRound(self._zygote, self._settings, limits)
        verdict = run.execute(command, language["environment"], content, keep)
        if run.stop is not None and run.stop.may_be_ours and self._retries < MOST_RETRIES:
            self._retries += 1
            run = CommandRound(self._zygote, self._settings, limits)
            verdict = run.execute(command, language["environment"], content, keep)
        return verdict

    def _wipe(self) -> None:
        self._zygote.send(b"{}")
        if not json.loads(self._zygote.recv(1024))["clean"]:
            raise ZygoteGone("a directory could not be emptied")


def prepared(language: dict, program: str, code: str, token: str) -> tuple[dict, dict]:
    """Returns (the dict that holds the commands, files) of a program, with the test's code after the program if there
    is any."""
    tested = language["tested"]
    if not code or tested is None:
        return language, {language["source"]: f"{program}\n{code}" if code else program}
    texts = {"{program}": program, "{code}": code, "{token}": token}
    return tested, {
        name: re.sub("|".join(texts), lambda found: texts[found[0]], text)
        for name, text in tested["files"].items()
    }


def check_end(verdict: Judged, token: str) -> Judged:
    """Removes the token from the output. Without the token the test's code did not come to its end, so the test has not
    passed."""
    before, found, after = verdict.stdout.partition(token)
    verdict = verdict._replace(stdout=before + after, isolation="shared")
    if verdict.status == "PASSED" and not found:
        return verdict._replace(status="RUNTIME_ERROR", error="the program ended before the test's code did")
    return verdict


def build_limits(language: dict, limits: dict) -> dict:
    """Returns the limits of a build. `limits` must hold `resident_mb`."""
    return limits | {
        "cpu_s": limits["cpu_s"] * BUILD_FACTOR,
        "wall_s": limits["wall_s"] * BUILD_FACTOR,
        "processes": max(limits["processes"], BUILD_PROCESSES),
        "file_mb": max(limits["file_mb"], BUILD_FILE_MB),
        "memory_mb": max(limits["memory_mb"], language["build_memory_mb"]),
        "resident_mb": max(limits["resident_mb"], language["build_memory_mb"]),
    }
