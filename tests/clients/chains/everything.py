# %% Tool names that are no Python names became modules; structured results are models.
from mcptools.everything import echo, get_structured_content, get_sum

cities = ("New York", "Chicago", "Los Angeles")
weather = {
    city: get_structured_content.run(get_structured_content.Params(location=city))
    for city in cities
}
assert all(
    isinstance(report, get_structured_content.Result) for report in weather.values()
), weather

# %% One tool's structured result is the next one's parameter.
total = 0
for report in weather.values():
    if report.humidity > 0:
        answer = get_sum.run(get_sum.Params(a=total, b=report.temperature))
        assert "sum" in answer, answer
        total += report.temperature
assert f"{total:g}" in answer, (total, answer)

echoed = echo.run(
    echo.Params(message=f"{len(weather)} cities, {weather['Chicago'].conditions}")
)
assert echoed.startswith("Echo: 3 cities"), echoed

# %% An enumerated parameter takes its member, too, and nothing else.
chicago = get_structured_content.Location.Chicago
assert (
    get_structured_content.run(
        get_structured_content.Params(location=chicago)
    ).temperature
    is not None
)
try:
    get_structured_content.Params(location="Atlantis")
except ValueError as error:
    assert "New York" in str(error), error
else:
    raise AssertionError("an unknown city is no error")

# %%
print("everything: done")
