"""The nouns of Sparring. Nothing here imports ray, torch or vllm."""
