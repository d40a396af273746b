"""The annotations, as type checkers see them."""

import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

TYPED = Path(__file__).with_name("typed.py")
PACKAGE = ROOT / "python/ipybox_rs"


@pytest.mark.parametrize("checked", [PACKAGE, TYPED], ids=["library", "program"])
def test_mypy_has_no_complaints(checked, tmp_path):
    pytest.importorskip("mypy")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(tmp_path),
        str(checked),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_finds_a_wrong_program(tmp_path):
    pytest.importorskip("mypy")
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from ipybox_rs import CodeExecutor\nCodeExecutor(images_dir=1)\n")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(tmp_path),
        str(wrong),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "images_dir" in done.stdout


def test_the_package_says_that_it_has_types():
    assert PACKAGE.joinpath("py.typed").is_file()
