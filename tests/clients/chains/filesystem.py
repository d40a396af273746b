# %% Files are written in a loop, and listed.
from pathlib import Path

from mcptools.filesystem import (
    create_directory,
    edit_file,
    list_directory,
    read_multiple_files,
    read_text_file,
    write_file,
)

root = Path.cwd() / "shelf"
create_directory.run(create_directory.Params(path=str(root)))
for number in range(5):
    write_file.run(
        write_file.Params(
            path=str(root / f"book-{number}.txt"),
            content=f"page {number}\n" * (number + 1),
        )
    )

listing = list_directory.run(list_directory.Params(path=str(root))).content
names = [line.removeprefix("[FILE] ") for line in listing.splitlines()]
assert names == [f"book-{number}.txt" for number in range(5)], listing

# %% The listing drives the reading, and what was read the editing.
thick = []
for name in names:
    text = read_text_file.run(read_text_file.Params(path=str(root / name))).content
    if text.count("page") > 3:
        thick.append(name)
assert thick == ["book-3.txt", "book-4.txt"], thick

for name in thick:
    edited = edit_file.run(
        edit_file.Params.model_validate(
            {
                "path": str(root / name),
                "edits": [{"oldText": "page", "newText": "leaf"}],
            },
        ),
    )
    assert "+leaf" in edited.content, edited
    assert (root / name).read_text().startswith("leaf"), name

together = read_multiple_files.run(
    read_multiple_files.Params(paths=[str(root / name) for name in thick])
).content
assert "leaf 3" in together and "leaf 4" in together, together
first = read_text_file.run(
    read_text_file.Params(path=str(root / "book-4.txt"), head=1)
).content
assert first.strip() == "leaf 4", first

# %% What lies outside the server's directories is refused.
try:
    read_text_file.run(read_text_file.Params(path="/etc/hostname"))
except Exception as error:  # noqa: BLE001 - its class is known by name only
    names = [cls.__name__ for cls in type(error).__mro__]
    assert "ToolRunnerError" in names, names
    assert "denied" in str(error), error
else:
    raise AssertionError("a file outside is no error")

# %%
print("filesystem: done")
