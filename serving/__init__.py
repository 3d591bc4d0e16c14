"""Models behind HTTP: vLLM's own OpenAI app for each that is loaded, and our `/v1/solve`. Ray Serve is scripts/serve.py's."""
