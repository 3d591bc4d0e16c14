"""R4's five model sizes, with the settings that R4 gives."""

import pytest

from configs.load import load_run
from configs.schema import Config
from sparring.games.programs.unit_tests import UnitTestsRules

SIZES = {"q": "direct", "q:3b": "direct", "q:7b": "direct", "q:14b": "reasoning", "q:32b": "reasoning"}


def load(*arguments: str) -> Config:
    return load_run(list(arguments))[0].to_config()


@pytest.mark.parametrize("name", SIZES)
def test_each_size_is_as_r4_says(name: str) -> None:
    config = load("--config", name)
    rules, learner, problems = config.game, config.generator.learner, config.problems
    assert isinstance(rules, UnitTestsRules)
    assert rules.answer_format == SIZES[name] and rules.sandbox_limits.cpu_s == 1.0
    assert (rules.base_weight, rules.perfect_weight, rules.max_tests) == (1.0, 1.0, 3)
    assert (config.learning_rate, config.temperature) == (2e-6, 0.8)
    assert (learner.estimator.kind, learner.lora, learner.minibatch_samples) == ("grpo", None, 56)
    assert config.curriculum.problems_per_step * config.curriculum.attempts == 56
    evaluation = config.evaluation
    assert (evaluation.every, evaluation.problems, evaluation.samples) == (25, 15, 4)
    assert evaluation.temperature == 0.8 and evaluation.pass_at == (1, 4)
    assert (problems.format, problems.split) == ("q", "train")
    assert (problems.held_out.format, problems.held_out.split) == (None, "test"), "the same format"
    assert problems.file == str(problems.held_out.file)
    assert (config.device, learner.sharding, learner.gpus, config.rollout.gpus) == ("cuda", "fsdp", 1, 1)
    assert (learner.workers, config.rollout.actors) == ((14, 2) if name == "q:32b" else (None, 1))
    assert name != "q:32b" or config.generator.engine.max_model_len == 8192


def test_the_smallest_can_be_put_on_one_gpu() -> None:
    options = "--generator.learner.workers 1 --generator.learner.sharding none --generator.learner.gpus 0.5"
    assert load("--config", "q", *options.split(), "--rollout.gpus", "0.5").generator.learner.workers == 1


def test_a_size_is_laid_over_the_recipe_and_the_command_line_over_both() -> None:
    run, name = load_run(["--config", "q:32b", "--rollout.actors", "3"])
    assert name == "q-32b"
    assert (run.rollout.actors, run.rollout.gpus, run.sandbox.workers, run.sandbox.slots) == (3, 1, 2, 8)


def test_r4s_own_flags_are_understood() -> None:
    said = (
        "--model ./mine --learning_rate 3e-6 --generation_temp 0.7 --eval_steps 30 --simple_eval_problems 12 "
        "--repeat_eval_problems 5 --base_reward_weight 2 --perfect_reward_weight 3 --max_tests_per_problem 4 "
        "--max_model_len 8192 --output_dir elsewhere"
    )
    config = load("--config", "q", *said.split())
    rules, engine, evaluation = config.game, config.generator.engine, config.evaluation
    assert isinstance(rules, UnitTestsRules)
    assert (config.generator.model, config.learning_rate, config.temperature) == ("./mine", 3e-6, 0.7)
    assert (evaluation.every, evaluation.problems, evaluation.samples) == (30, 12, 5)
    assert (rules.base_weight, rules.perfect_weight, rules.max_tests) == (2.0, 3.0, 4)
    assert engine.max_model_len == 8192 and str(config.output_dir) == "elsewhere"
    assert rules.answer_format == "direct"
    switches = ("--use_vllm", "--use_reasoning_format", "--generator.engine.kind", "transformers")
    config = load("--config", "q", *switches)
    assert config.generator.engine.kind == "vllm" and config.game.answer_format == "reasoning"
