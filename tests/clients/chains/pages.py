# %% The first, the last and a tool between them come from three pages.
from mcptools.pages import tool_00, tool_13, tool_24

for tool, name in ((tool_00, "tool_00"), (tool_13, "tool_13"), (tool_24, "tool_24")):
    assert tool.run(tool.Params()) == f"this is {name}", name

# %%
print("pages: done")
