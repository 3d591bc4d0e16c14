"""Models that cannot be loaded: what is said."""

import pytest
from huggingface_hub import constants

from core.errors import SparringError
from runtime.start import load_tokenizers


def test_offline_a_hub_id_without_a_copy_says_where_to_put_one(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)  # read from the variable at the import
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(SparringError) as caught:
        load_tokenizers({"generator": "nobody/such-model"})
    line = str(caught.value)
    assert line.startswith("generator.model nobody/such-model: cannot be loaded (") and "\n" not in line
    assert (
        "HF_HUB_OFFLINE is set" in line and "give a directory with a copy of it" in line and "HF_HOME" in line
    )


@pytest.mark.parametrize("offline", ["0", "1"])
def test_a_directory_without_a_model_says_what_is_expected(tmp_path, monkeypatch, offline: str) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    with pytest.raises(SparringError, match=r"cannot be loaded .*give a directory in Hugging Face format"):
        load_tokenizers({"generator": str(tmp_path)})
