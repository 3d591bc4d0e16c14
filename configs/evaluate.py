"""The options of sparring evaluate, and which of them go together."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from configs.options import COUNTS, OPTIONS, ModelOptions, Stages, check_writable

ARMS = ("none", *COUNTS[:-1], "all")
"""The values of stages that --ablate tries."""
FIXED = ("reference", "empty")
"""Values of --policy that name no model."""
OWN_TESTS = "baseline"
"""The value of --discriminator that names no model: the problems' own tests."""
_OF_PROGRAMS = ("samples", "stages", "ablate", "answer_format")
_OF_SUITES = ("suites", "mutants", "test_format", "max_tests", "programs")
_OF_MODELS = ("shown_tests", "engine", "dtype", "device", "max_tokens", "max_model_len")


class EvaluateOptions(ModelOptions):
    """Evaluates a generator's programs or a discriminator's test suites on any data set."""

    dataset: str | None = None
    """Data set: a file, "owner/name" on the hub, or a directory (formats q and grids). Default: the held-out problems that
    the model's run evaluates."""
    shown_tests: int = Field(0, ge=0)
    """Number of each problem's tests at the end of its description (problems.shown_tests)."""
    policy: str | None = None
    """Generator to evaluate: a run (its best checkpoint), a checkpoint of a run, a directory in Hugging Face format, a
    GGUF file, or a hub id; sparring/examples/toy holds toy models. Or reference: the data set's own solutions; or empty:
    empty programs."""
    discriminator: str | None = None
    """Discriminator whose suites are evaluated, instead of a policy; given in the same ways. Or baseline: the problems'
    own tests, and tests on as many and on eight times as many inputs near the inputs of these tests."""
    json_file: Path | None = Field(None, validation_alias="json")
    """JSON file to which the scores are written, besides the terminal."""
    samples: int = Field(0, ge=0)
    """Number of programs that are sampled per problem, for pass@k."""
    temperature: float = Field(1.0, gt=0)
    """Sampling temperature of the programs."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus sampling: tokens are drawn from the most likely ones that together have this probability."""
    top_k: int = Field(0, ge=0)
    """Number of most likely tokens from which a token is drawn; 0: all."""
    pass_at: list[Annotated[int, Field(ge=1)]] = [1]
    """A k of pass@k; may be repeated."""
    stages: Stages | None = None
    """none: one message, one answer; all: every reasoning stage (sparring/core/stages.py); a number: that many of them, then
    the program. Default: all for a generator that was trained on the stages, none for others."""
    ablate: bool = False
    """Evaluate with every value of --stages, one after another."""
    suites: int = Field(5, ge=1)
    """Number of suites that a discriminator writes per problem."""
    mutants: int = Field(12, ge=0)
    """Number of mutants of each reference solution that a discriminator's suites are run on; equivalent mutants do not
    count."""
    test_format: Literal["strict", "relabel", "input_only"] | None = None
    """Format of a discriminator's tests (game.test_format). Default: that of the checkpoint's run, or relabel."""
    max_tests: int | None = Field(None, ge=1)
    """Largest number of tests in a discriminator's suite (game.max_tests). Default: that of the checkpoint's run, or 8."""
    programs: Path | None = None
    """JSON file of an evaluation of the same data set with --policy, --samples and --json: the discriminator's tests choose
    among its sampled programs."""
    model_config: ClassVar[SettingsConfigDict] = {**OPTIONS, "cli_prog_name": "python -m sparring evaluate"}

    @model_validator(mode="after")
    def _options_go_together(self) -> Self:
        if (self.policy is None) == (self.discriminator is None):
            raise ValueError("give --policy or --discriminator, one of them")
        if self.dataset is None:
            self.refuse_changed(
                ("format", "split", "fields", "exact_outputs", "shown_tests"), "without --dataset"
            )
            if self.policy in FIXED or self.discriminator == OWN_TESTS:
                raise ValueError(
                    "--dataset is missing: only a trained model has a run whose held-out problems are known"
                )
        if self.policy is None:
            self.refuse_changed(_OF_PROGRAMS, "with --discriminator")
        else:
            self.refuse_changed(_OF_SUITES, "with --policy")
        if self.policy in FIXED:
            self.refuse_changed((*_OF_MODELS, *_OF_PROGRAMS), f"with --policy {self.policy}")
        if self.discriminator == OWN_TESTS:
            self.refuse_changed(
                (*_OF_MODELS, "suites", "test_format", "max_tests", "programs"),
                f"with --discriminator {OWN_TESTS}",
            )
        if not self.samples:
            self.refuse_changed(("temperature", "top_p", "top_k", "pass_at"), "without --samples")
        elif max(self.pass_at, default=0) > self.samples:
            raise ValueError(
                f"--pass-at {max(self.pass_at)} needs as many --samples (they are {self.samples})"
            )
        if self.ablate:
            self.refuse_changed(("stages",), "with --ablate")
        if self.answer_format and (self.stages or "none") != "none":
            self.refuse_changed(("answer_format",), "with --stages")
        if self.json_file is not None:
            check_writable(self.json_file, "--json")
        return self
