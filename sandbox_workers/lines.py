"""A job and its verdicts as JSON, in a file (`judge`) or over HTTP (`serve`)."""

from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from core.verdict import Limits, OutputTest, Test, Verdict
from sandbox_workers.jobs import Job


class OutputTestLine(BaseModel):
    model_config = ConfigDict(extra="forbid")
    stdout: str | None
    stdin: str = ""
    code: str = ""


class JobRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    program: str
    tests: list[str | OutputTestLine]
    language: str = "python"
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _can_be_judged(self) -> "JobRequest":
        for test in self.judged_tests():
            if self.language != "python" or isinstance(test, OutputTest):  # Python source is not read here
                Job(program="", tests=(test,), limits=self.limits, language=self.language).message()
        return self

    def judged_tests(self) -> list[Test]:
        return [test if isinstance(test, str) else OutputTest(**test.model_dump()) for test in self.tests]


def line_of(verdict: Verdict) -> dict[str, Any]:
    fields = asdict(verdict)
    return {"status": str(verdict.status), "time_ms": fields.pop("cpu_ms")} | {
        name: fields[name] for name in ("value", "memory_bytes", "stdout", "stderr", "error")
    }
