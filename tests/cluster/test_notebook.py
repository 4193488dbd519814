"""The notebook of the docs, run as it stands there."""

import os
import sys
from pathlib import Path

import pytest

from tests.tutorials import ROOT

pytestmark = pytest.mark.slow


def test_the_notebook_trains_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    (tmp_path / "model_zoo").symlink_to(ROOT / "model_zoo")
    monkeypatch.setenv("EDLZ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    notebook = nbformat.read(ROOT / "docs" / "notebooks" / "mnist.ipynb", as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    texts = [str(output.get("data", {}).get("text/plain", output.get("text", ""))) for output in shown]
    pages = [output["data"]["text/html"] for output in shown if "text/html" in output.get("data", {})]
    assert any("accuracy" in text for text in texts)
    assert any("Succeeded" in page for page in pages)
    assert any("Loss = " in text for text in texts)
