"""The notebook of an executor."""

import json

import pytest
from support import until

from ipybox_rs import CodeExecutor


def has_cell(notebook):
    """True if a notebook has the code and what it has printed."""
    cells = json.loads(notebook.read_text())["cells"]
    return any(
        "".join(cell["source"]) == "print('written')"
        and "".join(cell["outputs"][0]["text"]) == "written\n"
        for cell in cells
        if cell["cell_type"] == "code"
    )


async def test_code_is_appended_to_a_notebook(tmp_path):
    async with CodeExecutor(
        working_dir=tmp_path, state_dir=tmp_path / "state", notebook="run.ipynb"
    ) as executor:
        await executor.execute("print('written')")
        notebook = tmp_path / "run.ipynb"
        assert executor.notebook == notebook
        # At the end, the writing of the last cells has a time limit.
        await until(lambda: notebook.exists() and has_cell(notebook))
    assert has_cell(notebook)


async def test_auto_is_in_the_state_directory(tmp_path):
    async with CodeExecutor(
        working_dir=tmp_path, state_dir=tmp_path / "state", notebook="auto"
    ) as executor:
        await executor.execute("1")
        assert executor.notebook.is_relative_to(tmp_path / "state")
        assert executor.notebook.suffix == ".ipynb"
    async with CodeExecutor(
        working_dir=tmp_path, state_dir=tmp_path / "state"
    ) as executor:
        assert executor.notebook is None


async def test_other_files_are_refused(tmp_path):
    executor = CodeExecutor(working_dir=tmp_path, notebook="notes.txt")
    with pytest.raises(ValueError, match="notes.txt"):
        await executor.start()
