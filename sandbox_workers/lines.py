"""The JSON of a job and its verdicts, in a file (`judge`) or over HTTP (`serve`)."""

from dataclasses import asdict
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from sandbox_workers.client import SandboxClient
from sandbox_workers.jobs import Job
from sparring.core.verdict import Limits, OutputTest, ReferenceTest, Test, Verdict, known_by


class OutputTestLine(BaseModel):
    model_config = ConfigDict(extra="forbid")
    stdout: str | None
    stdin: str = ""
    code: str = ""


class JobRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    program: str
    tests: list[str | OutputTestLine]
    reference: str | None = None
    """A correct program. Its results, not those of `program`, decide how each test is judged."""
    language: str = "python"
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _can_be_judged(self) -> "JobRequest":
        for number, test in enumerate(self.judged_tests()):
            if isinstance(test, OutputTest):
                try:
                    test.stdin.encode("utf-8", "surrogateescape")
                except UnicodeEncodeError as error:
                    raise ValueError(f"tests.{number}.stdin: no text that can be written: {error}") from None
            if self.language != "python" or isinstance(test, OutputTest):  # Python source is not read here
                Job(program="", tests=(test,), limits=self.limits, language=self.language).message()
        return self

    def judged_tests(self) -> list[Test]:
        return [test if isinstance(test, str) else OutputTest(**test.model_dump()) for test in self.tests]


async def judge_request(
    sandbox: SandboxClient, job: JobRequest, limits: Limits, run: int | None = 0
) -> list[Verdict]:
    """Judges a job. If it has a reference, the reference is judged first.

    Raises:
        SandboxFailure: a test could not be judged.
        UnknownLanguage: the language is not known, or cannot run here.
    """
    tests = job.judged_tests()
    outputs = (test.stdout or "" for test in tests if isinstance(test, OutputTest))
    longest = max((len(text.encode("utf-8", "surrogatepass")) for text in outputs), default=0)
    if 2 * longest > limits.output_kb * 1024:  # else no program could pass
        limits = limits.model_copy(update={"output_kb": 2 * longest // 1024 + 1})
    judge = partial(sandbox.judge, limits=limits, run=run, language=job.language)
    if job.reference is not None:
        asked = [ReferenceTest(test) if isinstance(test, str) else test for test in tests]
        found = await judge(job.reference, asked)
        tests = [known_by(test, [verdict]) for test, verdict in zip(tests, found, strict=True)]
    return await judge(job.program, tests)


def line_of(verdict: Verdict) -> dict[str, Any]:
    fields = asdict(verdict)
    return {"status": str(verdict.status), "time_ms": fields.pop("cpu_ms")} | {
        name: fields[name] for name in ("value", "isolation", "memory_bytes", "stdout", "stderr", "error")
    }
