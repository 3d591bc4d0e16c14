"""Rules of the games. Imports core only: policies, prompts' tokenizers and the sandbox are injected."""
