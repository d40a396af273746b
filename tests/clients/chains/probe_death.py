# %% One server process for all calls; when it died, the call fails and the next one has a new server.
from mcptools.probe import crash, echo, pid

first = pid.run(pid.Params())
assert pid.run(pid.Params()) == first
try:
    crash.run(crash.Params())
except Exception as error:  # noqa: BLE001 - its class is known by name only
    names = [cls.__name__ for cls in type(error).__mro__]
    assert "ToolRunnerError" in names, names
else:
    raise AssertionError("a crash is no error")
assert echo.run(echo.Params(text="again")) == "again"
assert pid.run(pid.Params()) != first

# %%
print("probe_death: done")
