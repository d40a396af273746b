# %% One tool's structured result is the next one's parameter, in a loop with a condition.
from mcptools.time import convert_time, get_current_time
from pydantic import ValidationError

now = get_current_time.run(get_current_time.Params(timezone="UTC"))
assert now.timezone == "UTC", now
clock = now.datetime.split("T")[1][:5]

ahead = {}
for zone in ("Asia/Tokyo", "America/New_York", "Asia/Kolkata"):
    converted = convert_time.run(
        convert_time.Params(
            source_timezone=now.timezone, time=clock, target_timezone=zone
        ),
    )
    assert converted.source.timezone == "UTC", converted
    if converted.time_difference.startswith("+"):
        ahead[zone] = converted.time_difference

# %% State of the first cell; what was found is what the clocks say.
assert ahead == {"Asia/Tokyo": "+9.0h", "Asia/Kolkata": "+5.5h"}, ahead

# %% The server's own message comes with the error.
try:
    get_current_time.run(get_current_time.Params(timezone="Nowhere/Land"))
except Exception as error:  # noqa: BLE001 - its class is known by name only
    names = [cls.__name__ for cls in type(error).__mro__]
    assert "ToolRunnerError" in names, names
    assert "Nowhere/Land" in str(error), error
else:
    raise AssertionError("an unknown zone is no error")

# %% Parameters are checked before anything is sent.
try:
    convert_time.Params(source_timezone="UTC", time="12:00")
except ValidationError as error:
    assert "target_timezone" in str(error), error
else:
    raise AssertionError("a missing parameter is no error")

# %%
print("time: done")
