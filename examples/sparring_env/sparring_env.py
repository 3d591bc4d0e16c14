"""Sparring's games as an environment of verifiers: `uv run eval sparring-env`."""

from sparring.serving.verifiers_env import ChatHarness, SparringEnv, SparringTaskset

__all__ = ["ChatHarness", "SparringEnv", "SparringTaskset"]
