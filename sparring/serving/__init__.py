"""Serves models over HTTP: vLLM's OpenAI app for each loaded model, and `/v1/solve`. sparring serve adds Ray Serve."""
