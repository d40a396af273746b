"""Checks the files in the wheel, without installing it."""

import base64
import csv
import hashlib
import io
import re
import zipfile
from email.parser import BytesParser
from email.policy import compat32
from pathlib import Path

from report import expect

REPOSITORY = Path(__file__).parents[2]

PROGRAMS = {"ipybox", "ipybox-rs"}

MOST_BYTES = 40_000_000
"""Less than PyPI takes; with optimization it is a tenth."""

FIELDS = {
    "Name": ["ipybox-rs"],
    "License-Expression": ["Apache-2.0"],
    "License-File": ["LICENSE"],
    "Requires-Python": [">=3.10"],
    "Requires-Dist": ["ipython>=8", "pydantic>=2", "pip"],
    "Description-Content-Type": ["text/markdown; charset=UTF-8; variant=GFM"],
}


def cargo_field(name):
    """A string that Cargo.toml says of the package, or of both packages of the workspace; Python 3.10 reads no TOML."""
    text = (REPOSITORY / "Cargo.toml").read_text()
    return re.search(rf'^{name} = "(.*)"$', text, re.MULTILINE)[1]


def library_files():
    """The files of the Python library, as they lie in the wheel."""
    root = REPOSITORY / "python"
    files = [*root.rglob("*.py"), *root.rglob("py.typed")]
    return {str(path.relative_to(root)) for path in files}


class Wheel:
    """A wheel, opened."""

    def __init__(self, path):
        self.path = Path(path).absolute()
        self.version = cargo_field("version")
        self.archive = zipfile.ZipFile(self.path)
        self.stem = f"ipybox_rs-{self.version}"

    def read(self, name):
        """The content of a file of the `.dist-info` directory."""
        return self.archive.read(f"{self.stem}.dist-info/{name}")

    def check_name(self):
        """The file's name says what it is, and for every Python 3."""
        pattern = rf"{re.escape(self.stem)}-py3-none-(manylinux|musllinux|linux|macosx)_\w+\.whl"
        expect(re.fullmatch(pattern, self.path.name), f"the name is {self.path.name}")
        tag = self.path.name.removeprefix(f"{self.stem}-").removesuffix(".whl")
        tags = re.findall(r"^Tag: (.*)$", self.read("WHEEL").decode(), re.MULTILINE)
        own = {f"py3-none-{platform}" for platform in tag.split("-")[2].split(".")}
        expect(set(tags) == own, f"the tags are {tags}")

    def check_files(self):
        """It holds two programs, the Python library and its description, and nothing else."""
        right = {f"{self.stem}.data/scripts/{name}" for name in PROGRAMS}
        right |= library_files()
        dist_info = ["METADATA", "WHEEL", "RECORD", "licenses/LICENSE"]
        dist_info += ["sboms/ipybox.cyclonedx.json"]
        right |= {f"{self.stem}.dist-info/{name}" for name in dist_info}
        names = self.archive.namelist()
        expect(len(names) == len(set(names)), f"a name is there twice: {names}")
        expect(set(names) == right, f"wrong files: {sorted(set(names) ^ right)}")
        for entry in self.archive.infolist():
            mode = entry.external_attr >> 16
            wanted = 0o755 if "/scripts/" in entry.filename else 0o644
            expect(mode & 0o777 == wanted, f"{entry.filename} has mode {mode:o}")
        size = self.path.stat().st_size
        expect(size <= MOST_BYTES, f"it has {size} bytes, more than {MOST_BYTES}")

    def check_record(self):
        """Each file is in RECORD with its hash, which uninstallation and auditors go by."""
        rows = list(csv.reader(io.StringIO(self.read("RECORD").decode())))
        recorded = {name: (hashed, size) for name, hashed, size in rows}
        for name in self.archive.namelist():
            content = self.archive.read(name)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
            right = (f"sha256={digest.decode().rstrip('=')}", str(len(content)))
            if name.endswith("/RECORD"):
                right = ("", "")
            expect(recorded.pop(name, None) == right, f"RECORD is wrong about {name}")
        expect(not recorded, f"RECORD has more: {recorded}")

    def check_metadata(self):
        """The metadata is Cargo.toml's and says whose package this is."""
        message = BytesParser(policy=compat32).parsebytes(self.read("METADATA"))
        fields = FIELDS | {
            "Version": [self.version],
            "Summary": [cargo_field("description")],
        }
        for name, right in fields.items():
            values = message.get_all(name, [])
            expect(sorted(values) == sorted(right), f"{name} is {values}, not {right}")
        urls = dict(line.split(", ", 1) for line in message.get_all("Project-URL"))
        expect(
            urls.get("Source") == cargo_field("repository"), f"Project-URL is {urls}"
        )
        text = message.get_payload(decode=True).decode()
        readme = (REPOSITORY / "packaging/wheel/README.md").read_text()
        expect(text.strip() == readme.strip(), "the description is not the README")
        expect("independent implementation" in text, "it does not say whose it is")
        links = re.findall(r"\]\((.*?)\)", text)
        expect(
            links and all(link.startswith("https://") for link in links),
            f"there are links that lead nowhere on the page: {links}",
        )
        license_text = (REPOSITORY / "LICENSE").read_bytes()
        expect(self.read("licenses/LICENSE") == license_text, "another license")
