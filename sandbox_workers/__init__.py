"""The sandbox: programs and tests judged in warm containers, or in namespaces where no Docker Engine
answers."""
