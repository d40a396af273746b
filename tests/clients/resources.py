"""Uses resources as a client does: those that answers name are listed and read, in whole and in parts."""

import base64

from steps import Scenario, expect, expect_success

scenario = Scenario(__doc__)
step = scenario.step


async def named(bench, name):
    """The newest resource whose title is this."""
    listed = await bench.server.resources()
    found = [resource for resource in listed if resource["title"] == name]
    expect(found, f"{name} is not among {listed}")
    return found[0]


@step("a file that a cell shows is read")
async def shown_file(bench):
    (bench.workspace / "data.csv").write_text("a,b\n1,2\n")
    outcome = await bench.server.cell("show_file('data.csv')")
    expect("[data.csv](" in expect_success(outcome), "the file is not named", outcome)
    expect(
        [part["type"] for part in outcome.content] == ["text"],
        "there is more than a text",
        outcome,
    )
    resource = await named(bench, "data.csv")
    expect((resource["mimeType"], resource["size"]) == ("text/csv", 8), str(resource))
    (content,) = await bench.server.read(resource["uri"])
    expect(content["text"] == "a,b\n1,2\n", str(content))


@step("bytes arrive as they are")
async def bytes_of_a_file(bench):
    expect_success(await bench.server.cell("show_file(bytes(range(256)), 'all.bin')"))
    resource = await named(bench, "all.bin")
    (content,) = await bench.server.read(resource["uri"])
    expect(base64.b64decode(content["blob"]) == bytes(range(256)), str(content))


@step("a file that the client passes is there for the cell")
async def passed_file(bench):
    contents = {"uri": "sales.csv", "text": "region,sales\nnorth,5\n"}
    outcome = await bench.server.call(
        "execute_ipython_cell",
        {"code": "print(open(uploaded_file('sales.csv')).read())"},
        meta={"ipybox/files": [contents]},
    )
    expect(expect_success(outcome) == contents["text"].rstrip(), "other text", outcome)


@step("long output is read in parts")
async def parts(bench):
    expect_success(await bench.server.cell("print('x' * 10_000 + 'end')"))
    listed = await bench.server.resources()
    uri = next(each["uri"] for each in listed if "ipybox://outputs/" in each["uri"])
    (content,) = await bench.server.read(f"{uri}?from=9999&bytes=4")
    expect(content["text"] == "xend", str(content))


@step("what is not there is refused with the reason")
async def refused(bench):
    for uri in ["ipybox://files/0a1b2c3d-x", "file:///etc/passwd"]:
        message = await bench.server.read(uri)
        expect(isinstance(message, str) and uri in message, f"{uri}: {message}")


@step("the skill is a resource")
async def skill(bench):
    (content,) = await bench.server.read("skill://codeact/SKILL.md")
    expect(content["text"].startswith("---\nname: codeact\n"), str(content)[:200])
    expect(content["mimeType"] == "text/markdown", str(content)[:200])


if __name__ == "__main__":
    scenario.main()
