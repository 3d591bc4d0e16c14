"""The sandbox. It judges programs by tests in warm containers, or in namespaces if no Docker Engine answers."""
