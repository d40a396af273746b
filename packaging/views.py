#!/usr/bin/env python3
"""Packs the libraries that draw plots in views, from the packages of npm that the tests install.

With `--check`, says whether the packed ones are those. The versions are pinned in `tests/tools/package.json`.
"""

import argparse
import gzip
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKED = ROOT / "src/kernels/output/plots/libraries"
TOOLS = Path(os.environ.get("IPYBOX_TEST_TOOLS", ROOT / "target/test-tools"))
MODULES = TOOLS / "npm/node_modules"

# The files that make a library, in this order.
LIBRARIES = {
    # The edition that needs no `unsafe-eval`.
    "plotly": ["plotly.js-strict-dist-min/plotly-strict.min.js"],
    "vega": [
        "vega/build/vega.min.js",
        "vega-lite/build/vega-lite.min.js",
        "vega-interpreter/build/vega-interpreter.js",
        "vega-embed/build/vega-embed.min.js",
    ],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    for name, files in LIBRARIES.items():
        content = b"\n".join(script(file) for file in files)
        packed = PACKED / f"{name}.js.gz"
        if not is_check:
            packed.write_bytes(gzip.compress(content, 9, mtime=0))
        elif gzip.decompress(packed.read_bytes()) != content:
            sys.exit(
                f"{packed} is not of the pinned versions: run {Path(__file__).name}"
            )


def script(file):
    """A file as a script for a page, below its licence: the one that is a module uses what Vega has brought."""
    text = (MODULES / file).read_text()
    if file.startswith("vega-interpreter/"):
        text = re.sub(r"^import (\{.*\}) from 'vega-util';", r"const \1 = vega;", text)
        text = re.sub(
            r"^export \{ (\w+) as (\w+) \};",
            r"globalThis.vegaInterpreter = { \2: \1 };",
            text,
            flags=re.MULTILINE,
        )
        text = f"(() => {{\n{text}\n}})();"
    text = re.sub(r"\n//# sourceMappingURL=.*", "", text)
    return f"{licence(file.split('/')[0])}\n{text}".encode()


def licence(package):
    """The text of a package's licence, as a comment: it goes wherever the library goes."""
    text = (MODULES / package / "LICENSE").read_text()
    return f"/*! {package}\n\n{text}*/"


if __name__ == "__main__":
    main()
