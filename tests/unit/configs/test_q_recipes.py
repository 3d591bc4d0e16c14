"""R4's five model sizes, with the settings that R4 gives."""

import pytest

from configs.load import load_run
from configs.schema import Config
from games.programs.unit_tests import UnitTestsRules

SIZES = {"q_1_5b": "direct", "q_3b": "direct", "q_7b": "direct", "q_14b": "reasoning", "q_32b": "reasoning"}


@pytest.fixture(params=SIZES)
def recipe(request) -> tuple[str, Config]:
    return request.param, load_run(["--config", request.param])[0].to_config()


def test_rewards_and_answers_are_r4s(recipe) -> None:
    name, config = recipe
    rules = config.game
    assert isinstance(rules, UnitTestsRules)
    assert rules.answer_format == SIZES[name]
    assert (rules.base_weight, rules.perfect_weight, rules.max_tests) == (1.0, 1.0, 3)
    assert rules.sandbox_limits.cpu_s == 1.0


def test_training_and_evaluation_are_r4s(recipe) -> None:
    _, config = recipe
    assert (config.learning_rate, config.temperature) == (2e-6, 0.8)
    learner = config.generator.learner
    assert (learner.estimator, learner.lora, learner.minibatch_samples) == ("grpo", None, 56)
    assert config.curriculum.problems_per_step * config.curriculum.attempts == 56
    evaluation = config.evaluation
    assert (evaluation.every, evaluation.problems, evaluation.samples) == (25, 15, 4)
    assert evaluation.temperature == 0.8 and evaluation.pass_at == (1, 4)


def test_problems_are_the_q_set_by_its_splits(recipe) -> None:
    _, config = recipe
    problems = config.problems
    assert (problems.format, problems.split) == ("q", "train")
    assert (problems.held_out_format, problems.held_out_split) == ("q", "test")
    assert problems.file == str(problems.held_out_file)


def test_the_learner_is_spread_over_whole_gpus(recipe) -> None:
    name, config = recipe
    learner = config.generator.learner
    assert (config.device, learner.sharding, learner.gpus, config.rollout.gpus) == ("cuda", "fsdp", 1, 1)
    gpus = learner.workers + config.rollout.actors
    assert gpus == (16 if name == "q_32b" else 8)


def test_the_largest_has_r4s_length() -> None:
    config = load_run(["--config", "q_32b"])[0].to_config()
    assert config.generator.engine.max_model_len == 8192


def test_the_smallest_can_be_put_on_one_gpu() -> None:
    options = "--generator.learner.workers 1 --generator.learner.sharding none --generator.learner.gpus 0.5"
    config = load_run(["--config", "q_1_5b", *options.split(), "--rollout.gpus", "0.5"])[0].to_config()
    assert config.generator.learner.workers == 1
