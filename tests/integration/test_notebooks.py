"""The notebooks in the form for a machine without a GPU, by a real kernel."""

import os
from pathlib import Path

import nbformat
import pytest
import yaml
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from tests.integration.conftest import rows_of

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    "name", ["colab", pytest.param("kaggle", marks=pytest.mark.nightly)]
)  # they differ in paths only
def test_a_notebook_trains_on_problems_of_its_own(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    book = nbformat.read(ROOT / "examples" / f"{name}.ipynb", as_version=4)
    nbformat.validate(book)
    (at,) = [i for i, cell in enumerate(book.cells) if "parameters" in cell.metadata.get("tags", ())]
    small = (
        f"SMALL, INSTALL, OUTPUT, MODEL_CACHE = True, False, {str(tmp_path)!r}, {str(tmp_path / 'models')!r}"
    )
    book.cells.insert(at + 1, nbformat.v4.new_code_cell(small))
    # by files: ports are bound long after they are chosen
    kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=str(tmp_path / "kernel"))
    client = NotebookClient(book, kernel, timeout=500, resources={"metadata": {"path": str(ROOT)}})
    client.execute(env=dict(os.environ))

    run = tmp_path / "notebook"
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["problems"]["file"] == str(tmp_path / "my_problems.json")
    assert config["local"] and config["sandbox"]["backend"] == "process"
    rows = rows_of(run)
    assert rows[-1]["step"] == 3 and all(row["dropped"]["sandbox_failure"] == 0 for row in rows[1:])
    for role in ("generator", "discriminator"):
        assert any(row.get(role, {}).get("samples") for row in rows), f"the {role} has learnt from something"
        assert config[role]["learner"]["lora"]["rank"] == 4
        assert (run / "checkpoints" / "best" / role / "adapter_model.safetensors").is_file()
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs), "the curves are shown"
