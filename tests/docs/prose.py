"""Checks what the documentation says beside its blocks: `prose.py [--binary PATH] [--book DIR]`.

- links between the Markdown files of the repository lead to files, and to headings that are there;
- every page is in the summary, and only pages are;
- every page of decisions is in their list, by its title, and its room names it;
- files of Rust that texts for developers name are there;
- ARCHITECTURE.md is short, also together with the README and a page about the architecture; it links all of these pages, and its
  glossary has words of the program;
- the pages of docs/ are short together;
- the table of flags has the flags of `--help` (with `--binary`);
- the messages in the tables of troubleshooting are the program's;
- the texts for models have every page whole;
- docstrings and names of classes of Python can be searched (`python_words.py`);
- links in the built book lead somewhere (with `--book`, what mdBook has written).

Prints a line for each; ends with 1 if one failed. Standard library only.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
DECISIONS = DOCS / "decisions"
ARCHITECTURE = DOCS / "architecture"
FOR_DEVELOPERS = [DECISIONS, ARCHITECTURE]
"""These files are no pages of the book: the first have a list of their own, ARCHITECTURE.md links the others."""
sys.path.insert(0, str(REPOSITORY / "packaging"))

import book
from python_words import problems_of_python

NOT_OURS = {".git", "node_modules", "target"}
"""Directories whose Markdown nobody here writes."""

MOST_WORDS_OF_DOCS = 70_000
"""Of all Markdown in docs/. A new page replaces words of others."""

SHORTEST_FRAGMENT = 8
"""Characters of a message between two `…` from which on they are looked for; less would be found anywhere."""

MOST_WORDS, MOST_TERMS = 1800, 40
"""Of ARCHITECTURE.md and its glossary: what a newcomer reads in ten minutes."""

MOST_WORDS_OF_THE_WAY_IN = 3500
"""Of the README, ARCHITECTURE.md and any page about a part: what a newcomer reads before the code."""

EXTERNAL = re.compile(r"[a-z][a-z0-9+.-]*:|//")


def markdown_files():
    """The Markdown of the repository."""
    found = []
    for directory in [REPOSITORY, *REPOSITORY.iterdir()]:
        if directory == REPOSITORY:
            found += directory.glob("*.md")
        elif directory.is_dir() and directory.name not in NOT_OURS:
            found += (
                file
                for file in directory.rglob("*.md")
                if not NOT_OURS & set(file.relative_to(REPOSITORY).parts)
            )
    return sorted(found)


def anchors(text):
    """The fragments that a forge gives the headings of a text."""
    found = set()

    def heading(line, _spans):
        if match := re.match(r"#{1,6}\s+(.*)", line):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1])
            slug = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
            count = 0
            while (numbered := f"{slug}-{count}" if count else slug) in found:
                count += 1
            found.add(numbered)
        return line

    book.outside_of_code(text, heading)
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def links(text):
    """The targets of a text's links."""
    found = []

    def collect(line, spans):
        for match in book.LINK.finditer(line):
            is_code = any(
                begin <= match.start() and match.end() <= end for begin, end in spans
            )
            if not is_code:
                found.append(match[2])
        found.extend(
            re.findall(r'<(?:a|img|source)\b[^>]*?(?:href|src|srcset)="([^"]+)"', line)
        )
        return line

    book.outside_of_code(text, collect)
    return found


def problems_of_links():
    for file in markdown_files():
        name = file.relative_to(REPOSITORY)
        for target in links(file.read_text()):
            if EXTERNAL.match(target):
                continue
            path, _mark, anchor = target.partition("#")
            led = (file.parent / unquote(path)).resolve() if path else file
            if not led.exists():
                yield f"{name}: `{target}` leads to no file"
            elif (
                anchor
                and led.suffix == ".md"
                and anchor not in anchors(led.read_text())
            ):
                yield f"{name}: `{target}` leads to no heading of {led.relative_to(REPOSITORY)}"


def problems_of_the_summary():
    listed = [page.file for page in book.pages()]
    there = {
        file.relative_to(DOCS).as_posix()
        for file in DOCS.rglob("*.md")
        if not any(file.is_relative_to(directory) for directory in FOR_DEVELOPERS)
    }
    there.discard("SUMMARY.md")
    for file in sorted(there - set(listed)):
        yield f"docs/SUMMARY.md has no line for {file}"
    for file in sorted(set(listed) - there):
        yield f"docs/SUMMARY.md names {file}, which is not there"
    for file in sorted({file for file in listed if listed.count(file) > 1}):
        yield f"docs/SUMMARY.md names {file} twice"


def problems_of_the_decisions():
    titles = {
        file.name: file.read_text().partition("\n")[0].removeprefix("# ")
        for file in DECISIONS.rglob("*.md")
    }
    index, code = (DECISIONS / "README.md").read_text(), source()
    del titles["README.md"]
    for title, name in re.findall(r"^- \[(.+)\]\((.+)\)$", index, re.MULTILINE):
        found = titles.pop(name, None)
        if found is None:
            yield f"docs/decisions/README.md names {name} twice, or it is not there"
        elif found != title:
            yield f"docs/decisions/README.md calls {name} `{title}`, which is not its title"
        elif name not in OF_NO_ROOM and f"`docs/decisions/{name}`" not in code:
            yield f"no room of src/ or crates/ names docs/decisions/{name} as its reasons"
    for name in sorted(titles):
        yield f"docs/decisions/README.md has no line for {name}"


OF_NO_ROOM = {"libraries.md", "python.md", "shipping.md"}
"""Decisions about more or other than a room."""


def problems_of_named_files():
    sources = [
        f"/{file.relative_to(REPOSITORY).as_posix()}"
        for directory in ("benches", "crates", "examples", "src", "tests")
        for file in (REPOSITORY / directory).rglob("*.rs")
    ]
    texts = [REPOSITORY / "ARCHITECTURE.md", REPOSITORY / "CONTRIBUTING.md"]
    for file in texts + [
        file for directory in FOR_DEVELOPERS for file in directory.rglob("*.md")
    ]:
        for name in re.findall(r"`([\w./-]+\.rs)`", file.read_text()):
            if not any(it.endswith(f"/{name}") for it in sources):
                yield f"{file.relative_to(REPOSITORY)} names {name}, which is not there"


def problems_of_the_architecture():
    text = (REPOSITORY / "ARCHITECTURE.md").read_text()
    if (count := len(text.split())) > MOST_WORDS:
        yield f"ARCHITECTURE.md has {count} words instead of {MOST_WORDS}: what else could be in docs/architecture?"
    before = len(f"{text} {(REPOSITORY / 'README.md').read_text()}".split())
    pages = sorted(ARCHITECTURE.rglob("*.md"))
    for file in pages:
        count = before + len(file.read_text().split())
        if count > MOST_WORDS_OF_THE_WAY_IN:
            yield f"README.md, ARCHITECTURE.md and {file.name} have {count} words instead of {MOST_WORDS_OF_THE_WAY_IN}"
    linked = {(REPOSITORY / target).resolve() for target in links(text)}
    for file in sorted(set(pages) - linked):
        yield f"ARCHITECTURE.md does not link {file.relative_to(REPOSITORY)}"
    glossary = text.partition("\n## Glossary\n")[2]
    rows = re.findall(r"^\| (.+?) \|", glossary, re.MULTILINE)[1:]
    terms = [term for row in rows for term in row.split(", ")]
    if not 0 < len(terms) <= MOST_TERMS:
        yield f"the glossary has {len(terms)} terms instead of at most {MOST_TERMS}"
    code = source()
    for term in terms:
        # A name in Rust, or words of a comment.
        words = re.escape(term).replace(r"\ ", r"[ _]?")
        if not re.search(rf"(?<![a-z]){words}(?:e?s)?(?![a-z])", code, re.IGNORECASE):
            yield f"nothing in src/ is called `{term}`, as the glossary says"


def problems_of_length():
    count = sum(len(file.read_text().split()) for file in DOCS.rglob("*.md"))
    if count > MOST_WORDS_OF_DOCS:
        yield f"docs/ has {count} words instead of {MOST_WORDS_OF_DOCS}: which pages repeat others?"


def problems_of_flags(binary):
    help_text = subprocess.run(
        [binary, "--help"], capture_output=True, text=True, check=True
    ).stdout
    there = set(re.findall(r"^\s+(?:-\w, )?(--[a-z-]+)", help_text, re.MULTILINE)) - {
        "--help",
        "--version",
    }
    page = (DOCS / "configuration.md").read_text()
    documented = set(re.findall(r"^\| `(--[a-z-]+)", page, re.MULTILINE))
    for flag in sorted(there - documented):
        yield f"docs/configuration.md has no line for `{flag}`"
    for flag in sorted(documented - there):
        yield f"docs/configuration.md describes `{flag}`, which `--help` does not know"


def source():
    """The texts that the program can say: its source, with strings of several lines in one piece."""
    text = "".join(
        file.read_text()
        for directory in ("crates", "src")
        for file in sorted((REPOSITORY / directory).rglob("*"))
        if file.suffix in (".rs", ".py")
    )
    return re.sub(r"\\\n\s*", "", text).replace('\\"', '"').replace("\\n", "\n")


def problems_of_messages():
    every, count = source(), 0
    for name in ["troubleshooting.md", "sandbox.md", "remote-kernels.md"]:
        for line in (DOCS / name).read_text().splitlines():
            first = line.split(" | ")[0]
            if not first.startswith("| "):
                continue
            for span in re.findall(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", first):
                message = span[1].strip() if span[1].strip() else span[1]
                if " " not in message:
                    continue
                count += 1
                for fragment in re.split(r"`?…`?|[A-Z]{4,}/", message):
                    words = fragment.strip(" `:,")
                    if (
                        len(words) >= SHORTEST_FRAGMENT
                        and words not in every
                        and words not in NOT_IN_THE_SOURCE
                    ):
                        yield f"docs/{name}: nothing in src/ says `{words}`"
    if count < 40:
        yield f"only {count} messages were found in the tables: has their form changed?"


NOT_IN_THE_SOURCE = {
    "setting up uid map: Permission denied",
    "No permissions to create new namespace",
    "Tunnel connection failed: 403",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "Read-only file system",
    "Permission denied",
    "/ipybox: No such file or directory",
    "is not authorized to start kernel",
}
"""Messages of the system, bubblewrap, Python's libraries, Enterprise Gateway and the parser of the command line."""


def problems_of_texts_for_models():
    with tempfile.TemporaryDirectory(prefix="ipybox-llms-") as directory:
        written = Path(directory)
        book.write_llms(written)
        index, full = (
            (written / name).read_text() for name in ("llms.txt", "llms-full.txt")
        )
        site = book.manifest("homepage").rstrip("/")
        place = 0
        for page in book.pages():
            if f"]({site}/{page.file})" not in index:
                yield f"llms.txt has no line for {page.file}"
            text = (written / page.file).read_text().strip()
            found = full.find(text)
            if found < place:
                yield f"llms-full.txt does not have {page.file} whole and in its order"
            place = max(found, place)
            # What is compared with itself proves nothing: the source has to be in there, line by line, but for links.
            wanted = [
                line
                for line in page.source.read_text().splitlines()
                if line and "](" not in line
            ]
            lines = set(text.splitlines())
            missing = [
                line
                for line in wanted
                if line not in lines and not line.startswith("<!-- test:")
            ]
            if missing:
                yield f"{page.file} for models lacks `{missing[0]}`"
            for target in links(text):
                path = target.partition("#")[0]
                if (
                    not EXTERNAL.match(target)
                    and path
                    and not (written / page.file).parent.joinpath(path).exists()
                    and path.endswith(".md")
                ):
                    yield f"{page.file} for models: `{target}` leads nowhere"
        for url in re.findall(r"\]\(([^)]+)\)", index):
            if (
                not url.startswith(site)
                or not (written / url.removeprefix(f"{site}/")).exists()
            ):
                yield f"llms.txt: `{url}` leads nowhere"


class Html(HTMLParser):
    """The links and the fragments of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name in ("href", "src") and value and tag != "base":
                self.links.append(value)


def problems_of_the_book(directory):
    every = {file: Html(file.read_text()) for file in directory.rglob("*.html")}
    if not every:
        yield f"{directory} has no pages\nhint: run `mdbook build`"
    for page in book.pages():
        if directory / page.file.replace(".md", ".html") not in every:
            yield f"the book has no page of docs/{page.file}"
    for file, html in every.items():
        # These two are made of all the others' parts, or know where the site is.
        if file.name in ("404.html", "print.html", "toc.html"):
            continue
        for target in html.links:
            path, _mark, anchor = target.partition("#")
            if EXTERNAL.match(target):
                continue
            led = (file.parent / unquote(path)).resolve() if path else file
            if not led.exists():
                yield f"{file.name}: `{target}` leads to no file of the book"
            elif anchor and led in every and unquote(anchor) not in every[led].ids:
                yield f"{file.name}: `{target}` leads to no place of that page"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", type=Path, help="the program ipybox")
    parser.add_argument("--book", type=Path, help="what mdBook has written")
    options = parser.parse_args()
    checks = {
        "links lead somewhere": problems_of_links(),
        "every page is in the summary": problems_of_the_summary(),
        "every page of decisions is in the list": problems_of_the_decisions(),
        "files of Rust that texts name are there": problems_of_named_files(),
        "ARCHITECTURE.md is a short way in": problems_of_the_architecture(),
        "docs/ is short": problems_of_length(),
        "messages are the program's": problems_of_messages(),
        "texts for models are whole": problems_of_texts_for_models(),
        "words of Python can be searched": problems_of_python(REPOSITORY),
    }
    if options.binary:
        checks["flags are those of `--help`"] = problems_of_flags(
            options.binary.resolve()
        )
    if options.book:
        checks["links in the book lead somewhere"] = problems_of_the_book(
            options.book.resolve()
        )
    failures = 0
    for sentence, problems in checks.items():
        try:
            problems = list(problems)
        except book.BookError as error:
            problems = [str(error)]
        print(
            "FAIL" if problems else "ok  ",
            sentence,
            *problems,
            sep="\n    " if problems else "  ",
        )
        failures += bool(problems)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
