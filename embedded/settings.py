"""How the embedded models are made."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from core.settings import Settings

Numbers = Literal["small", "large"]


class WarmStartSettings(Settings):
    """How the embedded models are made."""

    seed: int = 0
    generator_steps: int = Field(default=1200, ge=1)
    discriminator_steps: int = Field(default=400, ge=1)
    batch_size: int = Field(default=16, ge=1)
    learning_rate: float = Field(default=3e-3, gt=0)
    misconceptions: float = Field(default=0.65, ge=0, le=1)
    """Probability that a demonstration shows a mistake where it could (a condition misread, a program that does not
    run, a wrong prediction, an illegal move, a needlessly long program): a deliberately flawed demonstrator, so that
    there is something to learn by play."""
    numbers: Numbers = "small"
    """In the conditions of the multi-stage game's embedded problems, those of the demonstrations and those that are played:
    small, 1 to 7; large, 100 to 999, which random inputs hardly ever meet, and each problem names one or two."""
    misreadings: float = Field(default=0.0, ge=0, le=1)
    """Probability that a demonstration of the multi-stage game takes the number of a condition for its neighbour: mistakes
    that few problems share and few inputs show."""
    weak_suites: float = Field(default=0.9, ge=0, le=1)
    """Share of the discriminator's demonstrations that test next to nothing."""
    invalid_suites: float = Field(default=0.05, ge=0, le=1)
    """Share of them with an invalid or repeated test."""

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
        """What is said of one policy's model."""
        common = self.model_dump(exclude={"generator_steps", "discriminator_steps"})
        return {"role": role, "steps": self.steps(role), **common}
