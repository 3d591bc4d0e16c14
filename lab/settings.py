"""Settings of the supervised warm-up that makes the toy models."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from sparring.core.settings import Settings

Numbers = Literal["small", "large"]


class WarmUp(Settings):
    """Settings of the supervised warm-up that makes the toy models."""

    seed: int = 0
    generator_steps: int = Field(default=1200, ge=1)
    discriminator_steps: int = Field(default=400, ge=1)
    batch_size: int = Field(default=16, ge=1)
    learning_rate: float = Field(default=3e-3, gt=0)
    misconceptions: float = Field(default=0.65, ge=0, le=1)
    """Probability that a demonstration contains a mistake where one is possible (a misread condition, a program that
    does not run, a wrong prediction, an illegal move, a needlessly long program). The demonstrations are deliberately
    flawed, so that there is something to learn by play."""
    numbers: Numbers = "small"
    """Size of the numbers in the conditions of the multi-stage game's toy problems:
    small, 1 to 7, or large, 100 to 999. With large, each problem names one or two of these numbers, and random inputs
    hardly ever hit them."""
    misreadings: float = Field(default=0.0, ge=0, le=1)
    """Probability that a demonstration of the multi-stage game replaces the number of a condition by its neighbour.
    Each such mistake concerns few problems, and few inputs show it."""
    weak_suites: float = Field(default=0.9, ge=0, le=1)
    """Share of the discriminator's demonstrations whose test suites hardly ever fail a wrong program."""
    invalid_suites: float = Field(default=0.05, ge=0, le=1)
    """Share of the discriminator's demonstrations with an invalid or repeated test."""

    @model_validator(mode="after")
    def _suites_are_shares_of_one(self) -> Self:
        if self.weak_suites + self.invalid_suites > 1:
            raise ValueError(
                f"weak_suites {self.weak_suites} and invalid_suites {self.invalid_suites} must sum to at most 1"
            )
        return self

    def steps(self, role: str) -> int:
        return self.generator_steps if role == "generator" else self.discriminator_steps

    def of(self, role: str) -> dict[str, Any]:
        """Returns the settings that concern one policy's model."""
        common = self.model_dump(exclude={"generator_steps", "discriminator_steps"})
        return {"role": role, "steps": self.steps(role), **common}
