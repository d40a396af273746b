"""The documentation as a book, beyond what mdBook does: links into the repository, and the texts for models.

    mdbook build                          calls this as its preprocessor (`book.toml`)
    python3 packaging/book.py llms DIR    writes llms.txt, llms-full.txt and the pages as Markdown to DIR

The pages are written for the forge, where `../SECURITY.md` and `../examples/quickstart.rs` lead somewhere. In the book
a file that a page includes is that page, and any other file of the repository is a URL.
"""

import json
import posixpath
import re
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

REPOSITORY = Path(__file__).resolve().parent.parent
DOCS = REPOSITORY / "docs"

FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
INLINE_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
LINK = re.compile(r"(\]\()([^()\s]+)((?:\s+\"[^\"]*\")?\))")
INCLUDE = re.compile(r"\{\{#include (\S+)\}\}\s*")


class BookError(Exception):
    """The pages are wrong. The message is for their author."""


@dataclass(frozen=True)
class BookPage:
    """A line of the summary."""

    title: str
    file: str
    part: str

    @property
    def source(self):
        """The file whose text the page is: its own, or the one that it includes."""
        path = DOCS / self.file
        if not path.is_file():
            raise BookError(
                f"docs/SUMMARY.md names `{self.file}`, which is not in docs/"
            )
        if included := INCLUDE.fullmatch(path.read_text()):
            path = (path.parent / included[1]).resolve()
            if not path.is_file():
                raise BookError(
                    f"docs/{self.file} includes `{included[1]}`, which is not there"
                )
        return path


def manifest(key):
    """A value of `[package]` in Cargo.toml."""
    text = (REPOSITORY / "Cargo.toml").read_text()
    found = re.search(rf'^{key} = "(.*)"$', text, re.MULTILINE)
    if not found:
        raise BookError(f'Cargo.toml has no line `{key} = "…"`')
    return found[1]


def pages():
    """The pages in the order of the summary."""
    part, found = "", []
    for line in (DOCS / "SUMMARY.md").read_text().splitlines():
        if line == "# Summary":
            continue
        if line.startswith("# "):
            part = line[2:]
        elif link := re.fullmatch(r"\s*(?:- )?\[(.+)\]\((.+)\)", line):
            found.append(BookPage(link[1], link[2], part))
        elif line.strip():
            raise BookError(f"docs/SUMMARY.md: neither a part nor a page: {line}")
    return found


def outside_of_code(text, change):
    """`text` with `change` made on what is neither a fenced block nor inline code."""
    lines, fence = [], None
    for line in text.splitlines(keepends=True):
        mark = FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = None
        elif mark:
            fence = mark[1]
        else:
            # A link's own text may be code: only a span that holds a whole link hides it.
            spans = [span.span() for span in INLINE_CODE.finditer(line)]
            line = change(line, spans)
        lines.append(line)
    return "".join(lines)


def link_in_book(target, source, places):
    """The link in the book for `target`, which is written in `source`. `places` are the pages by the file that is their text."""
    directory = PurePosixPath(places[source]).parent
    path, mark, anchor = target.partition("#")
    if not path or re.match(r"[a-z][a-z+.-]*:", path):
        return target
    file = (source.parent / path).resolve()
    if file in places:
        return posixpath.relpath(places[file], directory) + mark + anchor
    if not file.is_relative_to(REPOSITORY) or not file.exists():
        raise BookError(
            f"{source.relative_to(REPOSITORY)}: `{target}` leads to no file of the repository"
        )
    if file.is_relative_to(DOCS) and file.suffix != ".md":
        there = file.relative_to(DOCS).as_posix()
        return posixpath.relpath(there, directory) + mark + anchor
    kind = "tree" if file.is_dir() else "blob"
    return f"{manifest('repository')}/{kind}/main/{file.relative_to(REPOSITORY).as_posix()}{mark}{anchor}"


def text_of(page, places):
    """The page's Markdown, with the links of the book."""
    source = page.source

    def change(line, spans):
        def replaced(match):
            if any(
                begin <= match.start(1) and match.end() <= end for begin, end in spans
            ):
                return match[0]
            return match[1] + link_in_book(match[2], source, places) + match[3]

        return LINK.sub(replaced, line)

    text = outside_of_code(source.read_text(), change)
    # Notes to the tests, which nobody else needs.
    return re.sub(r"^<!-- test: .*? -->\n+", "", text, flags=re.MULTILINE | re.DOTALL)


def texts():
    """Every page with its Markdown."""
    listed = pages()
    places = {page.source: page.file for page in listed}
    return [(page, text_of(page, places)) for page in listed]


def preprocess():
    """mdBook's protocol: `[context, book]` comes by stdin, the book goes to stdout."""
    _context, book = json.load(sys.stdin)
    by_file = {page.file: text for page, text in texts()}

    def visit(items):
        for item in items:
            if isinstance(item, dict) and (chapter := item.get("Chapter")):
                chapter["content"] = by_file[PurePosixPath(chapter["path"]).as_posix()]
                visit(chapter["sub_items"])

    visit(book.get("items") or book["sections"])
    json.dump(book, sys.stdout)


def summary_of(text):
    """The first sentence of a page's text, without its markup."""
    paragraphs = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
    for paragraph in paragraphs:
        if not re.match(r"\s*(#|```|\||<|!\[|- )", paragraph):
            plain = re.sub(
                r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split())
            ).replace("**", "")
            return re.split(r"(?<=[.:])\s+(?=[A-Z`])", plain)[0].rstrip(":")
    return ""


def write_llms(directory):
    """Writes the index, the whole text, and each page beside its HTML."""
    site = manifest("homepage").rstrip("/")
    every = texts()
    what, more = (" ".join(part.split()) for part in every[0][1].split("\n\n")[1:3])
    more = LINK.sub(lambda link: f"{link[1]}{site}/{link[2]}{link[3]}", more)
    index = [f"# ipybox\n\n> {what}\n\n{more}\n"]
    part = None
    for page, text in every:
        if page.part != part:
            part = page.part
            index.append(f"\n## {part or 'Introduction'}\n\n")
        about = summary_of(text)
        index.append(
            f"- [{page.title}]({site}/{page.file}){': ' + about if about else ''}\n"
        )
        file = directory / page.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    index.append(
        f"\n## Optional\n\n- [The whole text]({site}/llms-full.txt): all pages in one file\n"
    )
    (directory / "llms.txt").write_text("".join(index))
    (directory / "llms-full.txt").write_text(
        "\n\n".join(text.strip() for _page, text in every) + "\n"
    )


def main(arguments):
    """Does what the command line says; gives the exit code."""
    try:
        if not arguments:
            preprocess()
        elif arguments[0] == "supports" and len(arguments) == 2:
            return 0
        elif arguments[0] == "llms" and len(arguments) == 2:
            write_llms(Path(arguments[1]))
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except BookError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
