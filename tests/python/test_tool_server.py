"""Tool servers, and the clients that call their tools and approve the calls."""

import asyncio
import contextlib
import gc
import json
import os
import signal
import socket

import pytest
from support import SECONDS, until

from ipybox_rs import (
    ApprovalClient,
    ApprovalClientError,
    ApprovalPolicy,
    ApprovalRejectedError,
    ApprovalTimeoutError,
    HostError,
    StartError,
    ToolRunner,
    ToolRunnerError,
    ToolServer,
)
from ipybox_rs.tool_exec.approval.server import ApprovalChannel
from ipybox_rs.tool_exec.client import reset


async def accept(request):
    await request.accept()


async def leave(request):
    """Does not answer."""


def listens(port):
    """True if something listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_run_returns_what_the_tool_does(probe):
    async with ToolServer(port=0) as server:
        runner = ToolRunner("probe", probe, port=server.port)
        assert await runner.run("echo", {"text": "hi"}) == "hi"
        assert await runner.run("add", {"a": 1, "b": 2}) == {
            "total": 3,
            "terms": [1, 2],
        }


async def test_run_sync_returns_the_same(probe):
    async with ToolServer(port=0) as server:
        runner = ToolRunner("probe", probe, port=server.port)
        assert runner.run_sync("echo", {"text": "hi"}) == "hi"
        with pytest.raises(ToolRunnerError, match="asked to"):
            runner.run_sync("fail", {})


async def test_a_tool_that_fails_is_an_error_with_its_text(probe):
    async with ToolServer(port=0) as server:
        runner = ToolRunner("probe", probe, port=server.port)
        with pytest.raises(ToolRunnerError, match="failed: on purpose"):
            await runner.run("fail", {"reason": "on purpose"})
        with pytest.raises(ToolRunnerError):
            await runner.run("no_such_tool", {})


async def test_a_server_that_is_not_there_is_an_error():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    runner = ToolRunner("probe", None, port=port, token="x" * 16, host_token="y" * 16)
    with pytest.raises(ToolRunnerError):
        await runner.run("echo", {})
    with pytest.raises(ToolRunnerError):
        runner.run_sync("echo", {})
    with pytest.raises(ToolRunnerError):
        await runner.reset()


async def test_a_wrong_token_is_an_error(probe):
    async with ToolServer(port=0) as server:
        with pytest.raises(ToolRunnerError):
            await ToolRunner("probe", None, port=server.port, token="wrong" * 5).run(
                "echo", {}
            )
        with pytest.raises(ToolRunnerError):
            await ToolRunner(
                "probe", probe, port=server.port, host_token="wrong" * 5
            ).run("echo", {})


async def test_reset_closes_the_connections_to_mcp_servers(probe):
    async with ToolServer(port=0) as server:
        runner = ToolRunner("probe", probe, port=server.port)
        first = await runner.run("pid", {})
        assert await runner.run("pid", {}) == first
        await runner.reset()
        second = await runner.run("pid", {})
        await reset(port=server.port)
        assert len({first, second, await runner.run("pid", {})}) == 3


async def test_cancelling_a_run_leaves_the_server_usable(probe):
    async with ToolServer(port=0) as server:
        runner = ToolRunner("probe", probe, port=server.port)
        await runner.run("pid", {})
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(runner.run("slow", {"seconds": 100}), 0.3)
        assert await runner.run("echo", {"text": "next"}) == "next"


async def test_starting_a_server_twice_is_an_error():
    server = ToolServer(port=0)
    started = await asyncio.gather(
        server.start(), server.start(), return_exceptions=True
    )
    assert started[0] is None
    assert isinstance(started[1], RuntimeError)
    with pytest.raises(RuntimeError, match="already"):
        await server.start()
    port = server.port
    await asyncio.gather(server.stop(), server.stop())
    await server.stop()
    assert not listens(port)


async def test_a_port_that_is_taken_is_an_error():
    async with ToolServer(port=0) as server:
        with pytest.raises(StartError):
            await ToolServer(port=server.port).start()


async def test_join_waits_until_the_server_is_stopped():
    server = ToolServer(port=0)
    await server.join()
    await server.start()
    joining = asyncio.ensure_future(server.join())
    await asyncio.sleep(0.1)
    assert not joining.done()
    await server.stop()
    await asyncio.wait_for(joining, SECONDS)


async def test_the_tokens_of_a_stopped_server_are_gone():
    server = ToolServer(port=0)
    async with server:
        assert len({server.token, server.host_token}) == 2
    for name in ("token", "host_token"):
        with pytest.raises(RuntimeError, match="not running"):
            getattr(server, name)


async def test_given_tokens_are_used_and_bad_ones_refused():
    async with ToolServer(port=0, token="t" * 16, host_token="h" * 16) as server:
        assert (server.token, server.host_token) == ("t" * 16, "h" * 16)
    for token, host_token in (
        ("short", None),
        ("same" * 5, "same" * 5),
        ("ü" * 20, None),
    ):
        with pytest.raises(ValueError, match="token"):
            await ToolServer(port=0, token=token, host_token=host_token).start()


async def test_a_collected_server_warns_and_listens_no_more():
    async with ToolServer(port=0):
        server = ToolServer(port=0)
        await server.start()
        port = server.port
        with pytest.warns(ResourceWarning, match="unclosed <"):  # noqa: PT031
            del server
            gc.collect()
        await until(lambda: not listens(port))


@contextlib.asynccontextmanager
async def approved(probe, callback, **options):
    """A runner of a server whose calls the callback approves."""
    async with (
        ToolServer(port=0, approval_required=True, **options) as server,
        ApprovalClient(callback, port=server.port),
    ):
        yield ToolRunner("probe", probe, port=server.port)


async def test_accepted_calls_run(probe):
    async with approved(probe, accept) as runner:
        assert await runner.run("echo", {"text": "hi"}) == "hi"
        assert await asyncio.to_thread(runner.run_sync, "echo", {"text": "hi"}) == "hi"


async def test_rejected_calls_are_an_error(probe):
    async def reject(request):
        await request.reject()

    async with approved(probe, reject) as runner:
        with pytest.raises(ApprovalRejectedError):
            await runner.run("echo", {"text": "hi"})


async def test_calls_that_the_callback_leaves_are_rejected(probe):
    async with approved(probe, leave) as runner:
        with pytest.raises(ApprovalRejectedError):
            await runner.run("echo", {"text": "hi"})


async def test_a_callback_that_fails_rejects_its_call_and_no_more(probe, caplog):
    async def fail(request):
        if request.tool_args["text"] == "bad":
            raise ValueError("the callback failed")
        await request.accept()

    async with approved(probe, fail) as runner:
        with pytest.raises(ApprovalRejectedError):
            await runner.run("echo", {"text": "bad"})
        assert await runner.run("echo", {"text": "hi"}) == "hi"
    assert "the callback failed" in caplog.text


async def test_unanswered_calls_time_out(probe):
    kept = []

    async def keep(request):
        kept.append(request)

    async with approved(probe, keep, approval_timeout=0.2) as runner:
        with pytest.raises(ApprovalTimeoutError):
            await runner.run("echo", {"text": "hi"})
        # The caller may hear of it before the client does. A later question reaches the client after the withdrawal.
        with pytest.raises(ApprovalTimeoutError):
            await runner.run("echo", {"text": "again"})
        await until(lambda: len(kept) == 2)
        assert await kept[0].accept() is False


async def test_without_a_client_calls_are_rejected(probe):
    async with ToolServer(port=0, approval_required=True) as server:
        with pytest.raises(ApprovalRejectedError):
            await ToolRunner("probe", probe, port=server.port).run(
                "echo", {"text": "hi"}
            )


async def test_disconnecting_rejects_open_requests(probe):
    asked = asyncio.Event()
    kept = []

    async def keep(request):
        kept.append(request)
        asked.set()

    async with ToolServer(port=0, approval_required=True) as server:
        client = ApprovalClient(keep, port=server.port)
        await client.connect()
        runner = ToolRunner("probe", probe, port=server.port)
        running = asyncio.ensure_future(runner.run("echo", {"text": "hi"}))
        await asked.wait()
        await client.disconnect()
        await client.disconnect()
        with pytest.raises(ToolRunnerError):
            await running


async def test_a_callback_can_disconnect_its_client(probe, caplog):
    disconnected = asyncio.Event()

    async def disconnect(request):
        await request.accept()
        await client.disconnect()
        disconnected.set()

    async with ToolServer(port=0, approval_required=True) as server:
        client = ApprovalClient(disconnect, port=server.port)
        await client.connect()
        runner = ToolRunner("probe", probe, port=server.port)
        assert await runner.run("echo", {"text": "hi"}) == "hi"
        await asyncio.wait_for(disconnected.wait(), SECONDS)
    gc.collect()
    assert [
        record.message for record in caplog.records if record.name == "asyncio"
    ] == []


async def test_a_client_can_connect_again(probe):
    async with ToolServer(port=0, approval_required=True) as server:
        client = ApprovalClient(accept, port=server.port)
        for _ in range(2):
            async with client:
                with pytest.raises(RuntimeError, match="already"):
                    await client.connect()
                runner = ToolRunner("probe", probe, port=server.port)
                assert await runner.run("echo", {"text": "hi"}) == "hi"


async def test_a_second_client_gets_no_requests_while_the_first_is_there(probe, caplog):
    async def surprised(request):
        raise AssertionError(request)

    async with ToolServer(port=0, approval_required=True) as server:
        async with ApprovalClient(accept, port=server.port):
            second = ApprovalClient(surprised, port=server.port)
            with contextlib.suppress(ApprovalClientError):
                await second.connect()
                await asyncio.wait_for(second._task, SECONDS)
            runner = ToolRunner("probe", probe, port=server.port)
            assert await runner.run("echo", {"text": "hi"}) == "hi"
            await second.disconnect()
        async with ApprovalClient(accept, port=server.port):
            assert await runner.run("echo", {"text": "hi"}) == "hi"
    assert "another approval client is connected" in caplog.text


async def test_a_client_whose_connection_is_refused_says_so():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with pytest.raises(ApprovalClientError, match=str(port)):
        await ApprovalClient(accept, port=port, host_token="x" * 16).connect()
    with pytest.raises(ApprovalClientError, match="host_token"):
        await ApprovalClient(accept, port=port).connect()


async def test_a_client_with_a_wrong_token_is_refused():
    async with ToolServer(port=0, approval_required=True) as server:
        with pytest.raises(ApprovalClientError):
            await ApprovalClient(
                accept, port=server.port, host_token="x" * 16
            ).connect()
        with pytest.raises(ApprovalClientError):
            await ApprovalClient(
                accept, port=server.port, host_token=server.token
            ).connect()


async def test_a_client_outlives_its_server(probe):
    server = ToolServer(port=0, approval_required=True)
    await server.start()
    client = ApprovalClient(accept, port=server.port)
    await client.connect()
    await server.stop()
    await client.disconnect()


async def test_a_policy_decides_for_a_server(probe):
    policy = ApprovalPolicy(
        'default = "deny"\n[[rule]]\ntool = ["echo"]\neffect = "allow"\n'
    )
    async with ToolServer(port=0, approval_policy=policy) as server:
        runner = ToolRunner("probe", probe, port=server.port)
        assert await runner.run("echo", {"text": "hi"}) == "hi"
        with pytest.raises(ApprovalRejectedError):
            await runner.run("pid", {})


async def test_a_killed_host_process_ends_servers_and_clients(probe, workspace):
    server = ToolServer(port=0, approval_required=True)
    await server.start()
    client = ApprovalClient(accept, port=server.port)
    await client.connect()
    joining = asyncio.ensure_future(server.join())
    await asyncio.sleep(0.1)
    os.kill(workspace.hosts()[0], signal.SIGKILL)
    with pytest.raises(HostError):
        await joining
    await client.disconnect()
    await server.stop()
    await server.start()
    assert listens(server.port)
    await server.stop()


async def test_arguments_are_written_as_pydantic_writes_them(probe):
    pydantic = pytest.importorskip("pydantic")

    class Text(pydantic.RootModel[str]):
        pass

    async with ToolServer(port=0) as server:
        runner = ToolRunner("probe", probe, port=server.port)
        assert await runner.run("echo", {"text": Text("hi")}) == "hi"


async def test_application_with_runner_keeps_no_process(probe, workspace):
    async with ToolServer(port=0) as server:
        runner = ToolRunner("probe", probe, port=server.port)
        await runner.run("echo", {"text": "hi"})
    del runner
    gc.collect()
    workspace.assert_empty()


class Socket:
    """A WebSocket as a web framework has it, with a queue at the other end."""

    class WebSocketDisconnect(Exception):
        pass

    def __init__(self):
        self.sent, self.received = asyncio.Queue(), asyncio.Queue()
        self.closed = None

    async def accept(self):
        pass

    async def send_text(self, data):
        await self.sent.put(json.loads(data))

    async def receive_text(self):
        text = await self.received.get()
        if text is None:
            raise self.WebSocketDisconnect
        return text

    async def close(self, code=1000, reason=None):
        self.closed = code
        await self.received.put(None)

    async def answer(self, result):
        asked = await self.sent.get()
        await self.received.put(
            json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        )
        return asked["params"]


@contextlib.asynccontextmanager
async def channel_with_socket(**options):
    """A channel and the socket that is connected to it."""
    channel, connected = ApprovalChannel(**options), Socket()
    serving = asyncio.ensure_future(channel.connect(connected))
    while not channel.open:
        await asyncio.sleep(0)
    try:
        yield channel, connected
    finally:
        await connected.received.put(None)
        await serving


async def test_a_channel_without_approval_accepts():
    assert await ApprovalChannel().request("server", "tool", {}) is True


async def test_a_channel_without_a_client_is_an_error():
    channel = ApprovalChannel(approval_required=True)
    assert not channel.open
    with pytest.raises(RuntimeError):
        await channel.request("server", "tool", {})
    await channel.join()


@pytest.mark.parametrize("result", [True, False])
async def test_a_channel_asks_its_client(result):
    async with channel_with_socket(approval_required=True) as (channel, connected):
        asking = asyncio.ensure_future(channel.request("server", "tool", {"x": 1}))
        asked = await connected.answer(result)
        assert (asked["server_name"], asked["tool_name"]) == ("server", "tool")
        assert asked["tool_args"] == {"x": 1}
        assert await asking is result
    assert not channel.open
    await channel.join()


@pytest.mark.parametrize("kind", [TimeoutError, asyncio.TimeoutError])
async def test_a_channel_times_out_with_either_class(kind):
    async with channel_with_socket(approval_required=True, approval_timeout=0.05) as (
        channel,
        _,
    ):
        with pytest.raises(kind):
            await channel.request("server", "tool", {})
        with pytest.raises(kind):
            await channel.join(timeout=0.05)


async def test_a_channel_that_is_closed_ends_its_requests():
    async with channel_with_socket(approval_required=True) as (channel, connected):
        asking = asyncio.ensure_future(channel.request("server", "tool", {}))
        await connected.sent.get()
        await channel.disconnect()
        assert not channel.open
        with pytest.raises(RuntimeError):
            await asking
        assert connected.closed == 1000


async def test_a_channel_whose_client_leaves_ends_its_requests():
    async with channel_with_socket(approval_required=True) as (channel, connected):
        asking = asyncio.ensure_future(channel.request("server", "tool", {}))
        await connected.sent.get()
        await connected.received.put(None)
        with pytest.raises(RuntimeError):
            await asking


async def test_a_second_client_of_a_channel_does_not_disturb_the_first():
    async with channel_with_socket(approval_required=True) as (channel, connected):
        second = Socket()
        await channel.connect(second)
        assert second.closed == 1008
        asking = asyncio.ensure_future(channel.request("server", "tool", {}))
        await connected.answer(True)
        assert await asking is True


@pytest.mark.parametrize(
    "text", ["rubbish", "1", "{}", '{"id": []}', '{"id": "unknown", "result": true}']
)
async def test_a_channel_ignores_what_is_no_answer(text):
    async with channel_with_socket(approval_required=True) as (channel, connected):
        asking = asyncio.ensure_future(channel.request("server", "tool", {}))
        await connected.received.put(text)
        await connected.answer(True)
        assert await asking is True


async def test_a_channel_works_with_starlette_and_an_approval_client():
    starlette = pytest.importorskip("starlette.applications")
    uvicorn = pytest.importorskip("uvicorn")
    pytest.importorskip("wsproto")
    from starlette.routing import WebSocketRoute

    channel = ApprovalChannel(approval_required=True)
    app = starlette.Starlette(routes=[WebSocketRoute("/approval", channel.connect)])
    config = uvicorn.Config(
        app, port=0, log_level="error", lifespan="off", ws="wsproto"
    )
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with ApprovalClient(accept, "127.0.0.1", port, host_token="x" * 16):
        while not channel.open:
            await asyncio.sleep(0.01)
        assert await channel.request("server", "tool", {"x": 1}) is True
    await channel.join()
    server.should_exit = True
    await serving
