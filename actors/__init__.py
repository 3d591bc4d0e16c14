"""Policies and the actors that play episodes with them. Never imports learners or sandbox_workers: the driver
injects the game and the sandbox."""
