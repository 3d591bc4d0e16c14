"""The product but for the parts of a run (actors, learners, sandbox_workers) and its recipes (configs)."""
