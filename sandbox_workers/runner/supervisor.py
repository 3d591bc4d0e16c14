"""The first process of a sandbox. It reads job frames on stdin, has its slots judge them, and writes verdict frames on
stdout.

    {"id", "program", "tests", "limits", "language", "refuses_code"}
        -> {"id", "verdicts": [Judged, ...]}

`language` is None for a Python program with Python tests: see judging.py. Otherwise it holds commands. If
`refuses_code` is true, code tests are not run.
The supervisor ends when its stdin closes, and all that is inside ends with it. Exit code 3 means that a slot could not
be cleaned or that its zygote is gone.

Environment: SLOTS, UID_BASE; JOBS=directory if it is not /jobs; ISOLATION=namespaces|none and SECCOMP_BPF=path if the
launcher cannot do better; CHOWN_JOBS=1 if the launcher could not give the directories under /jobs their owners;
PACKAGES=directory of Python packages; COMMANDS=names, of which "ready" lists those that exist.
"""

import contextlib
import os
import signal
import socket
import sys
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from .commands import Commands
from .framing import ANY_SIZE, Frames, pack
from .judged import REFUSED, Judged
from .judging import Judging
from .pair import Evaluators, Pair
from .roles import NOT_DATA
from .shared import Shared
from .stop import MOST_RETRIES
from .zygote import ROLES, Settings, Zygote

if TYPE_CHECKING:
    import queue
    import threading

BROKEN = 3


class Slot:
    """A zygote per role, and the judge of the slot's jobs, one at a time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.zygotes = {role: fork_zygote(role, settings) for role in ROLES}
        self.evaluators = Evaluators(self.zygotes["test"], settings)
        self.commands = Commands(self.zygotes["program"], settings)

    def judge(self, job: dict) -> list[Judged]:
        """Returns one verdict per test. If `language` is None, a test is [its source, whether its results must be
        plain, its kind, the problem's entry point or "", the names of the library that mean the program's functions or
        None]:

        | kind | meaning |
        |---|---|
        | data | a data test, whatever the program does, because it was one with the reference |
        | text | a data test by its text; a code test if it does with a result what cannot be done with a copy |
        | reference | like text; also a code test if an object of the program stands where a plain value is compared, or if it passes only as code |
        | code | a code test |
        """
        if job["language"] is not None:
            return self.commands.judge(job)
        found: dict[int, Judged] = {}
        data = [index for index, test in enumerate(job["tests"]) if test[2] != "code"]
        found.update(zip(data, self._judge(job, data, True), strict=True))
        every = range(len(job["tests"]))
        rest = [index for index in every if index not in found or found[index].status == NOT_DATA]
        if job["refuses_code"]:
            return [REFUSED if index in rest else found[index] for index in every]
        found.update(zip(rest, self._judge(job, rest, False), strict=True))
        for index in data:
            if job["tests"][index][2] == "reference" and _may_be_code(found[index]):
                (verdict,) = self._judge(job, [index], False)
                found[index] = verdict if verdict.status == "PASSED" else found[index]
        return [found[index] for index in every]

    def _judge(self, job: dict, chosen: list[int], data: bool) -> list[Judged]:
        """Returns the verdicts of the tests with the chosen indices, in order."""
        tests, limits = [job["tests"][index] for index in chosen], job["limits"]
        verdicts: list[Judged] = []
        retried_at, retries = -1, 0
        while len(verdicts) < len(tests):
            round = self._round(limits, tests[len(verdicts) :], data)
            verdicts += round.judge(job["program"])
            if round.stop is None or len(verdicts) == len(tests):
                continue
            if round.stop.may_be_ours and retried_at != len(verdicts) and retries < MOST_RETRIES:
                # contention or another job's memory may be to blame: judge this test again, in a new round
                retried_at, retries = len(verdicts), retries + 1
                continue
            verdict = round.judged(round.stop)
            # A program that cannot be loaded fails all tests alike, and a failure of the sandbox would occur again.
            same_for_all = not round.loaded or round.stop.status == "SANDBOX_ERROR"
            verdicts += [verdict] * (len(tests) - len(verdicts) if same_for_all else 1)
        return verdicts

    def _round(self, limits: dict, tests: list[list], data: bool) -> Judging:
        zygote = self.zygotes["program"]
        if data:
            return Pair(zygote, self.evaluators, self.settings, limits, tests)
        return Shared(zygote, self.settings, limits, tests)


def _may_be_code(verdict: Judged) -> bool:
    """Returns whether the test may be one that only Python itself can run, so that the reference fails it as data: the
    test looks at an argument that is changed in the same comparison, rebinds a name of the program, asks an
    object of a subclass, or needs more of Python than the evaluator has."""
    fails = verdict.status in ("WRONG_ANSWER", "RUNTIME_ERROR") and verdict.isolation == "separate"
    return fails and not verdict.never_asked  # as code nothing would notice that


def fork_zygote(role: str, settings: Settings) -> socket.socket:
    """Forks a zygote. Returns the supervisor's connection to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        try:
            os.closerange(3, theirs.fileno())
            os.closerange(theirs.fileno() + 1, 4096)
            Zygote(role, settings, theirs).serve()
        except ConnectionError:  # the supervisor has ended, so nothing is left to do
            pass
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        os._exit(BROKEN)
    theirs.close()
    return ours


def serve_slot(slot: Slot, jobs: "queue.SimpleQueue[dict]", output: BinaryIO, lock: "threading.Lock") -> None:
    while True:
        job = jobs.get()
        broken = None
        try:
            verdicts = slot.judge(job)
        except BaseException as error:
            broken = error
            reason = f"{type(error).__name__}: {error}"[:500]
            verdicts = [Judged("SANDBOX_ERROR", error=reason)] * len(job["tests"])
        with lock:
            output.write(pack({"id": job["id"], "verdicts": verdicts}))
            output.flush()
            if broken is not None:
                traceback.print_exception(broken, file=sys.stderr)
                sys.stderr.flush()
                os._exit(BROKEN)


def read_settings(environment: Any) -> list[Settings]:
    seccomp = b""
    if path := environment.get("SECCOMP_BPF"):
        with open(path, "rb") as file:
            seccomp = file.read()
    return [
        Settings(
            slot=slot,
            uid_base=int(environment["UID_BASE"]),
            isolation=environment.get("ISOLATION", "uids"),
            seccomp=seccomp,
            jobs=environment.get("JOBS", "/jobs"),
        )
        for slot in range(int(environment["SLOTS"]))
    ]


def own_directories(all_settings: list[Settings]) -> None:
    """Gives the directories the owner root:job and the mode 0770. So root can list them without CAP_DAC_OVERRIDE, and
    the job cannot chmod them."""
    for settings in all_settings:
        for role in ROLES:
            os.chown(settings.home(role), 0, settings.uid(role))
            os.chmod(settings.home(role), 0o770)


def main() -> None:
    all_settings = read_settings(os.environ)
    if os.environ.get("CHOWN_JOBS") == "1":
        own_directories(all_settings)
    slots = [Slot(settings) for settings in all_settings]  # the only forks, before any content is read
    import queue  # after the forks: threading's work at each fork costs a child 100 page faults
    import shutil
    import threading

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for orphans that come here
    jobs: queue.SimpleQueue[dict] = queue.SimpleQueue()
    output, lock = sys.stdout.buffer, threading.Lock()
    for slot in slots:
        threading.Thread(target=serve_slot, args=(slot, jobs, output, lock), daemon=True).start()
    with lock:
        commands = [name for name in os.environ.get("COMMANDS", "").split() if shutil.which(name)]
        output.write(pack({"ready": sys.version.split()[0], "commands": commands}))
        output.flush()
    frames = Frames(partial(os.read, sys.stdin.fileno()), most=ANY_SIZE)
    with contextlib.suppress(EOFError):
        while True:
            jobs.put(frames.next())
    os._exit(0)


if __name__ == "__main__":
    main()
