"""A client that is a part of a trace: cells and their calls go on with it. Needs the SDK's 2.x line, which passes it on.

Give it the span that it is in, `--trace` and `--span`, and `--server-python`, a Python with the SDK's 1.x line.
"""

import json
from pathlib import Path

from opentelemetry import context, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from steps import Scenario, expect, expect_success

SERVER = Path(__file__).parents[1] / "servers" / "traces.py"

scenario = Scenario(__doc__)
step = scenario.step


@step("a call of code is in the client's trace")
async def call(bench):
    parameters = {"command": bench.options.server_python, "args": [str(SERVER)]}
    arguments = {"server_name": "traces", "server_params": parameters}
    expect_success(await bench.server.call("register_mcp_server", arguments))
    ids = int(bench.options.trace, 16), int(bench.options.span, 16)
    span = SpanContext(*ids, is_remote=False, trace_flags=TraceFlags(1))
    token = context.attach(trace.set_span_in_context(NonRecordingSpan(span)))
    outcome = await bench.server.cell(
        "from mcptools.traces import meta\nprint(meta.run())"
    )
    context.detach(token)
    sent = json.loads(expect_success(outcome))["traceparent"]
    expect(sent.startswith(f"00-{bench.options.trace}-"), sent)


if __name__ == "__main__":
    parser = scenario.arguments()
    for name in ["--trace", "--span", "--server-python"]:
        parser.add_argument(name, required=True)
    raise SystemExit(scenario.run(*scenario.parse(parser)))
