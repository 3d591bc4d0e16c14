"""First process of a sandbox: reads job frames on stdin, has its slots judge them, writes verdict frames on
stdout.

    {"id", "program", "tests", "limits"} -> {"id", "verdicts": [[status, value, cpu_ms, stdout, error], ...]}

It ends when stdin does, and with it everything inside. Exit code 3: a slot could not be cleaned, or its
zygote is gone.

Environment: SLOTS, UID_BASE; SINGLE_UID=1 and SECCOMP_BPF=path where one uid is all there is; CHOWN_JOBS=1
where the launcher could not give the directories under /jobs their owners.
"""

import math
import os
import queue
import socket
import sys
import threading
import traceback
from typing import Any, BinaryIO

from .framing import pack, read_frame
from .pair import Pair, Stop
from .zygote import ROLES, Settings, Zygote

BROKEN = 3


class Slot:
    """One zygote, and the judge of the jobs that it is given one at a time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.zygote, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            try:
                os.closerange(3, theirs.fileno())
                os.closerange(theirs.fileno() + 1, 4096)
                Zygote(settings, theirs).serve()
            except BaseException:
                traceback.print_exc()
            os._exit(BROKEN)
        theirs.close()

    def judge(self, job: dict) -> list[list]:
        """One [status, value, cpu_ms, stdout, error] per test."""
        tests, limits = job["tests"], dict(job["limits"])
        verdicts: list[list] = []
        retried_at = -1
        while len(verdicts) < len(tests):
            todo = tests[len(verdicts) :]
            limits["total_cpu_s"] = math.ceil(limits["cpu_s"] * (len(todo) + 1)) + 1
            pair = Pair(self.zygote, self.settings, limits)
            verdicts += pair.judge(job["program"], todo)
            if pair.stop is None or len(verdicts) == len(tests):
                continue
            if pair.stop.may_be_ours and retried_at != len(verdicts):
                retried_at = len(
                    verdicts
                )  # contention or a neighbour's memory: this test again, in a fresh pair
                continue
            verdict = final_verdict(pair.stop, pair)
            same_for_all = not pair.loaded  # a program that cannot be loaded fares alike with every test
            verdicts += [verdict] * (len(tests) - len(verdicts) if same_for_all else 1)
        return verdicts


def final_verdict(stop: Stop, pair: Pair) -> list:
    """What a stop means once it was not retried, or came again."""
    status = stop.status
    error = stop.error
    if stop.starved:
        status, error = "SANDBOX_ERROR", f"{error}, while waiting for the CPU"
    return [status, None, pair.cpu_ms(), pair.stdout(), error]


def serve_slot(slot: Slot, jobs: "queue.SimpleQueue[dict]", output: BinaryIO, lock: threading.Lock) -> None:
    while True:
        job = jobs.get()
        broken = None
        try:
            verdicts = slot.judge(job)
        except BaseException as error:
            broken = error
            reason = f"{type(error).__name__}: {error}"[:500]
            verdicts = [["SANDBOX_ERROR", None, 0.0, "", reason]] * len(job["tests"])
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
            single_uid=environment.get("SINGLE_UID") == "1",
            seccomp=seccomp,
        )
        for slot in range(int(environment["SLOTS"]))
    ]


def own_directories(all_settings: list[Settings]) -> None:
    """root:job 0770: root lists them without CAP_DAC_OVERRIDE, and the job cannot chmod them."""
    for settings in all_settings:
        for role in ROLES:
            os.chown(settings.home(role), 0, settings.uid(role))
            os.chmod(settings.home(role), 0o770)


def main() -> None:
    all_settings = read_settings(os.environ)
    if os.environ.get("CHOWN_JOBS") == "1":
        own_directories(all_settings)
    slots = [Slot(settings) for settings in all_settings]  # the only forks, before any content is read
    jobs: queue.SimpleQueue[dict] = queue.SimpleQueue()
    output, lock = sys.stdout.buffer, threading.Lock()
    for slot in slots:
        threading.Thread(target=serve_slot, args=(slot, jobs, output, lock), daemon=True).start()
    with lock:
        output.write(pack({"ready": sys.version.split()[0]}))
        output.flush()
    while (job := read_frame(sys.stdin.buffer)) is not None:
        jobs.put(job)
    os._exit(0)


if __name__ == "__main__":
    main()
