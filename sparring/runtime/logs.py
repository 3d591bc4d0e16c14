"""Silences libraries while a command of this project runs."""

import logging
import os
import warnings


def quiet_logs() -> None:
    """Silences the logs and warnings of libraries, so that the progress display stands alone. SPARRING_LOGS=1 leaves
    them on."""
    if os.environ.get("SPARRING_LOGS"):
        return
    warnings.filterwarnings("ignore")
    for name in ("ray", "vllm", "transformers", "torch", "docker", "bitsandbytes"):
        logging.getLogger(name).setLevel(logging.ERROR)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_LOGS", "-torch")
    os.environ.setdefault("RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS", "0")
