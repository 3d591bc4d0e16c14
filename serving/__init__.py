"""Serves models over HTTP: vLLM's OpenAI app for each loaded model, and `/v1/solve`. Only scripts/serve.py uses Ray Serve."""
