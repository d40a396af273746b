"""Code is in the trace of the application, if that uses OpenTelemetry."""

import json

import pytest
from opentelemetry import context, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from support import ROOT, TOOLS

from ipybox_rs import CodeExecutionResult, CodeExecutor

TRACE = 0x4BF92F3577B34DA6A3CE929D0E0E4736
CODE = "from mcptools.traces import meta\nprint(meta.run())"


@pytest.fixture
def exporting(monkeypatch):
    """Has the program export, to where nobody listens."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")


@pytest.fixture
def span():
    """The application is in this span."""
    current = SpanContext(TRACE, 1, is_remote=False, trace_flags=TraceFlags(1))
    token = context.attach(trace.set_span_in_context(NonRecordingSpan(current)))
    yield
    context.detach(token)


async def started(tmp_path):
    executor = CodeExecutor(working_dir=tmp_path)
    await executor.start()
    server = ROOT / "tests/servers/traces.py"
    command = str(TOOLS / "mcp1/bin/python")
    params = {"command": command, "args": [str(server)], "timeout": 300}
    await executor.register_mcp_server("traces", params)
    return executor


async def test_calls_of_code_are_in_the_trace_of_the_application(
    exporting, span, tmp_path
):
    executor = await started(tmp_path)
    executed = await executor.execute(CODE)
    streamed = None
    async for event in executor.stream(CODE):
        if isinstance(event, CodeExecutionResult):
            streamed = event
        else:
            await event.accept()
    await executor.stop()
    for result in [executed, streamed]:
        sent = json.loads(result.text)["traceparent"]
        assert sent.startswith(f"00-{TRACE:032x}-"), sent
        assert not sent.endswith(f"-{1:016x}-01"), sent


async def test_without_an_export_nothing_is_passed_on(span, tmp_path):
    executor = await started(tmp_path)
    result = await executor.execute(CODE)
    await executor.stop()
    assert "traceparent" not in json.loads(result.text)
