"""A program with annotations, which type checkers must understand without a complaint."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

from ipybox_rs import (
    ApigenReport,
    ApprovalClient,
    ApprovalPolicy,
    ApprovalRequest,
    AuditSettings,
    CodeExecutionChunk,
    CodeExecutionError,
    CodeExecutionResult,
    CodeExecutionTimeout,
    CodeExecutor,
    KernelClient,
    KernelGateway,
    KernelLostError,
    Registry,
    ToolRunner,
    ToolServer,
    apigen,
    generate_mcp_sources,
)
from ipybox_rs.doctor import examine
from ipybox_rs.tool_exec.approval.server import ApprovalChannel
from ipybox_rs.utils import arun, find_free_port

PARAMETERS: dict[str, Any] = {"command": "uvx", "args": ["mcp-server-fetch"]}


async def cells() -> str | None:
    registry = Registry(connect_timeout=10)
    names: list[str] = await generate_mcp_sources(
        "fetch", PARAMETERS, Path("mcptools"), registry=registry
    )
    async with CodeExecutor(
        images_dir=Path("images"),
        kernel_env={"A": "b"},
        approval_policy=ApprovalPolicy('default = "ask"'),
        audit=AuditSettings("audit.jsonl", contents="everything"),
        registry=registry,
    ) as executor:
        async with aclosing(executor.stream("1", chunks=True)) as stream:
            async for item in stream:
                match item:
                    case ApprovalRequest():
                        in_time: bool = await item.accept()
                        print(item.tool_args["x"], in_time, names)
                    case CodeExecutionChunk(text=text):
                        print(text.upper())
                    case CodeExecutionResult(text=result, images=images):
                        print(result, [image.name for image in images])
        try:
            done = await executor.execute("1", timeout=None)
        except CodeExecutionTimeout as error:
            return error.output.text if error.output else None
        except KernelLostError as error:
            return str(error.variables_kept)
        except CodeExecutionError as error:
            return error.name
        executor.cancel()
        return done.text


async def kernels() -> int:
    port: int = find_free_port()
    async with KernelGateway(port=port), KernelClient(port=port) as client:
        async for item in client.stream("1"):
            if isinstance(item, str):
                return len(item)
    return len(await arun(input, "how many? "))


async def tools() -> None:
    async def on_request(request: ApprovalRequest) -> None:
        await request.reject()

    async with (
        ToolServer(approval_required=True) as server,
        ApprovalClient(on_request, port=server.port),
    ):
        runner = ToolRunner("fetch", PARAMETERS)
        result: dict[str, Any] | str | None = await runner.run("x", {})
        print(result)
    report: ApigenReport = await apigen("fetch", "mcptools", server_params=PARAMETERS)
    accepted: bool = await ApprovalChannel().request("a", "b", {})
    print(report.modules, accepted, (await examine()).can_run)


if __name__ == "__main__":
    asyncio.run(cells())
