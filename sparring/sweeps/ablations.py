"""Ablations by name: the config keys that turn something off.

To add an ablation, add an entry. Entries that change nothing in the recipe, or that its game does not have, are left out.
"""

from collections.abc import Mapping
from typing import Any

from configs.schema import Config

Keys = Mapping[str, Any]

_GUARDS: Mapping[str, Keys] = {
    "without missing tests counted": {"game.rewards.validity_slots": 1},
    "without the unparseable penalty": {"game.rewards.unparseable_reward": 0.0},
    "without the fast-reference guard": {"game.rewards.kill_needs_fast_reference": 1.0},
    "without the solvability gate": {"game.rewards.unsolved_weight": 1.0},
    "without behaviour duplicates": {"game.rewards.behaviour_duplicates_from": 1_000_000},
    "pass rate over all tests": {"game.rewards.pass_rate_over": "all"},
}
_OPPONENTS: Mapping[str, Keys] = {
    "frozen discriminator": {"curriculum.frozen_players": ["discriminator"]},
    "frozen generator": {"curriculum.frozen_players": ["generator"]},
    "no discriminator": {
        "curriculum.frozen_players": ["discriminator"],
        "curriculum.frozen_suites": 0,
        "game.baseline_in_reward": True,
    },
    "mistake book": {"curriculum.remembered_tests": 8},
    "bank of wrong programs": {"curriculum.remembered_wrong_programs": 8},
}
_CREDIT: Mapping[str, Keys] = {
    "credit to the stage": {"credit.kind": "stage"},
    "credit to all stages": {"credit.kind": "all"},
    "gae": {
        "generator.learner.estimator.kind": "gae",
        "discriminator.learner.estimator.kind": "gae",
    },
    "grpo": {
        "generator.learner.estimator.kind": "grpo",
        "discriminator.learner.estimator.kind": "grpo",
    },
    "reinforce_pp": {
        "generator.learner.estimator.kind": "reinforce_pp",
        "discriminator.learner.estimator.kind": "reinforce_pp",
    },
}
_GOLF: Mapping[str, Keys] = {
    "without the length bonus": {"game.rewards.length_weight": 0.0},
    "without penalties": {
        "game.rewards.syntax_error_penalty": 0.0,
        "game.rewards.runtime_error_penalty": 0.0,
        "game.rewards.limit_penalty": 0.0,
    },
    "tasks in random order": {"curriculum.order": "random"},
    "shortest known program shown": {"game.show_best": True},
    "estimator gae": {"generator.learner.estimator.kind": "gae"},
    "estimator gae, rewards normalised by task": {
        "generator.learner.estimator.kind": "gae",
        "generator.learner.estimator.normalise_rewards": "task",
    },
}


def _stages(config: Config) -> Mapping[str, Keys]:
    """Returns settings that each leave one stage untrained; the generator still writes that stage."""
    stages = config.stages
    rest = {stage: [other for other in stages if other != stage] for stage in stages}
    return {f"without stage {s}": {"curriculum.stages": others} for s, others in rest.items() if others}


NAMES = ("stages", "guards", "opponents", "credit", "golf")


def ablation(name: str, config: Config) -> dict[str, Keys]:
    """Returns the keys of each setting, without the baseline."""
    tables = {"guards": _GUARDS, "opponents": _OPPONENTS, "credit": _CREDIT, "golf": _GOLF}
    entries = tables[name] if name in tables else _stages(config)
    absent = () if "discriminator" in config.policies else ("discriminator.",)
    return {
        entry: {k: v for k, v in keys.items() if not k.startswith(absent)} for entry, keys in entries.items()
    }
