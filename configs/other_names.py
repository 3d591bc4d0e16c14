"""Other trainers' names for our keys, and short options with the recipe that has them. If such a name is refused, the
message says which key or recipe is meant."""

OTHER_NAMES = {
    "model.id": "generator.model",
    "model.cache_dir": "model_cache",
    "training_args.learning_rate": "learning_rate",
    "training_args.per_device_train_batch_size": "generator.learner.minibatch_samples",
    "training_args.max_steps": "curriculum.n_generator_steps",
    "training_args.num_generations": "curriculum.attempts",
    "evaluation.num_questions": "evaluation.problems",
    "evaluation.eval_interval_steps": "evaluation.every",
    "evaluation.timeout_seconds": "game.sandbox_limits.wall_s",
    "vllm.enabled": "generator.engine.kind",
    "vllm.gpu_memory_utilization": "generator.engine.gpu_memory_utilization",
    "vllm.max_model_len": "generator.engine.max_model_len",
    "max_steps": "curriculum.n_generator_steps",
    "num_generations": "curriculum.attempts",
    "num_processes": "generator.learner.workers",
    "per_device_train_batch_size": "generator.learner.minibatch_samples",
    "gradient_accumulation_steps": "generator.learner.minibatch_samples",
    "lr": "learning_rate",
    "beta": "generator.learner.kl.coefficient",
    "kl_coef": "generator.learner.kl.coefficient",
    "epochs": "generator.learner.epochs",
    "ppo_epochs": "generator.learner.epochs",
    "num_train_epochs": "generator.learner.epochs",
    "group_size": "curriculum.attempts",
    "train_batch_size": "curriculum.problems_per_step",
    "batch_size": "curriculum.problems_per_step",
    "max_completion_length": "generator.max_tokens",
    "max_response_length": "generator.max_tokens",
    "max_new_tokens": "generator.max_tokens",
    "epsilon": "generator.learner.clip_low",
    "estimator": "generator.learner.estimator.kind",
    "use_peft": "generator.learner.lora.rank",
    "lora_r": "generator.learner.lora.rank",
    "dataset": "problems.file",
}
"""Keys of TRL, of verl, of accelerate, and of the two earlier GRPO projects in docs/requirements.md (code execution, q
language)."""

OPTIONS_OF_RECIPES = {
    "repeat-eval-problems": "q",
    "base-reward-weight": "q",
    "perfect-reward-weight": "q",
    "use-reasoning-format": "q",
    "discriminator-model": "chat",
    "n-discriminator-steps": "chat",
    "k-alternating-steps": "chat",
}
"""Short options that most other games refuse, with the recipe that has them."""
