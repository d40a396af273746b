"""The output of cells."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Truncated:
    """Output that was longer than `max_output_chars`.

    Attributes:
        chars: How many characters there are.
        file: A file in the working directory with all of it; `None` if it could not be written, which a note reports.
    """

    chars: int
    file: Path | None


@dataclass
class CodeExecutionResult:
    """The result of code that has run to its end.

    Attributes:
        text: What was printed, and the value of the last expression, without white space at the end; `None` if there
            is nothing.
        images: The paths of saved images, in order.
        truncated: Set if `text` is not all of it.
        late_text: What threads and tasks of earlier code have shown since the last result, after that code had ended.
        notes: Further notes: the kernel was restarted before, an image could not be saved.
        files: Copies of the files that code has shown by `show_file`, in order.
        cell: The id of the code, such as `"cell-7"`, for `CodeExecutor.reset`.
    """

    text: str | None
    images: list[Path]
    truncated: Truncated | None = None
    late_text: str | None = None
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    cell: str = field(default="", compare=False)

    @classmethod
    def of(cls, wire: dict[str, Any]) -> CodeExecutionResult:
        cut = wire["truncated"]
        file = cut and cut["file"]
        return cls(
            text=wire["text"],
            images=[Path(image) for image in wire["images"]],
            truncated=Truncated(cut["chars"], file and Path(file)) if cut else None,
            late_text=wire["late_text"],
            notes=wire["notes"],
            files=[Path(file) for file in wire["files"]],
            cell=wire["cell"],
        )


@dataclass
class CodeExecutionChunk:
    """A piece of output of running code. Only with `chunks=True`.

    Attributes:
        text: The text, with terminal control characters as the code wrote them.
    """

    text: str
