"""Kernels without tools, and the gateways that say how they run."""

import asyncio
import gc

import pytest
from support import ENDLESS, PNG, SECONDS, begun, collect

from ipybox_rs import ExecutionError, ExecutionResult, KernelClient, KernelGateway
from ipybox_rs.utils import find_free_port


@pytest.fixture
def port():
    return find_free_port()


async def test_results_and_chunks(port):
    async with KernelGateway(port=port), KernelClient(port=port) as client:
        assert (await client.execute("1 + 1")).text == "2"
        *chunks, result = await collect(client.stream("print('a')\nprint('b')"))
        assert "".join(chunks) == "a\nb\n"
        assert result == ExecutionResult("a\nb", [])


async def test_errors_and_timeouts(port):
    async with KernelGateway(port=port), KernelClient(port=port) as client:
        with pytest.raises(ExecutionError, match="ZeroDivisionError"):
            await client.execute("1/0")
        for kind in (TimeoutError, asyncio.TimeoutError):
            with pytest.raises(kind):
                await client.execute(ENDLESS, timeout=0.3)


async def test_the_gateways_environment_is_the_kernels(port):
    async with (
        KernelGateway(port=port, env={"NAME": "value"}),
        KernelClient(port=port) as client,
    ):
        assert (await client.execute("import os; os.environ['NAME']")).text == "'value'"


async def test_images_are_saved(port, tmp_path):
    async with (
        KernelGateway(port=port),
        KernelClient(port=port, images_dir=tmp_path) as client,
    ):
        assert (await client.execute(PNG)).images[0].parent == tmp_path


async def test_clients_have_kernels_of_their_own(port):
    async with (
        KernelGateway(port=port),
        KernelClient(port=port) as first,
        KernelClient(port=port) as second,
    ):
        await first.execute("x = 1")
        assert (await second.execute("'x' in dir()")).text == "False"
        assert first.kernel_id != second.kernel_id


async def test_reset_gives_a_fresh_kernel(port):
    async with KernelGateway(port=port), KernelClient(port=port) as client:
        before = client.kernel_id
        await client.execute("x = 1")
        await client.reset()
        assert client.kernel_id != before
        assert (await client.execute("'x' in dir()")).text == "False"


async def test_a_client_that_is_not_connected_says_so(port):
    client = KernelClient(port=port)
    for use in (
        lambda: client.execute("1"),
        lambda: collect(client.stream("1")),
        client.reset,
    ):
        with pytest.raises(RuntimeError, match="not connected"):
            await use()
    with pytest.raises(RuntimeError, match="not connected"):
        _ = client.kernel_id
    client.cancel()
    await client.disconnect()


async def test_connecting_twice_is_an_error(port):
    async with KernelGateway(port=port):
        client = KernelClient(port=port)
        done = await asyncio.gather(
            client.connect(), client.connect(), return_exceptions=True
        )
        assert done[0] is None
        assert isinstance(done[1], RuntimeError)
        await client.disconnect()
        await client.connect()
        assert (await client.execute("1")).text == "1"
        await client.disconnect()


async def test_a_port_where_nothing_listens_is_an_error_after_the_retries(
    port, workspace
):
    with pytest.raises(RuntimeError, match=str(port)):
        await KernelClient(port=port).connect(retries=2, retry_interval=0.01)
    workspace.assert_empty()


async def test_stopping_a_gateway_ends_the_kernels_of_its_clients(port, workspace):
    gateway = KernelGateway(port=port)
    await gateway.start()
    client = KernelClient(port=port)
    await client.connect()
    stream = await begun(client.stream(ENDLESS))
    await gateway.stop()
    assert workspace.processes() == {}
    with pytest.raises(Exception, match="."):
        await collect(stream)
    with pytest.raises(RuntimeError, match="not connected"):
        await client.execute("1")
    await gateway.stop()


async def test_a_gateway_starts_once_for_each_port(port):
    async with KernelGateway(port=port) as gateway:
        with pytest.raises(RuntimeError, match=str(port)):
            await gateway.start()
        with pytest.raises(RuntimeError, match=str(port)):
            await KernelGateway(port=port).start()
    async with gateway:
        pass


async def test_join_waits_until_the_gateway_is_stopped(port):
    gateway = KernelGateway(port=port)
    await gateway.start()
    joining = asyncio.ensure_future(gateway.join())
    await asyncio.sleep(0)
    assert not joining.done()
    await gateway.stop()
    await asyncio.wait_for(joining, SECONDS)


async def test_a_collected_client_warns_and_leaves_nothing(port, workspace):
    async with KernelGateway(port=port) as gateway:
        client = KernelClient(port=port)
        await client.connect()
        gateway._clients.clear()
        with pytest.warns(ResourceWarning):  # noqa: PT031
            del client
            gc.collect()
        workspace.assert_empty()


async def test_cancel_ends_code_without_an_exception(port):
    async with KernelGateway(port=port), KernelClient(port=port) as client:
        stream = await begun(client.stream(ENDLESS))
        client.cancel()
        assert (await collect(stream))[-1].text == "begun"
