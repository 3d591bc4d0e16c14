"""Serves models over HTTP: vLLM's OpenAI app for each loaded model, and `/v1/solve`. scripts/serve.py adds Ray Serve."""
