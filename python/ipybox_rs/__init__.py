"""A stateful IPython kernel with programmatic MCP tool calling, for AI agents.

Code that an agent writes runs in a kernel that keeps its variables, and calls the tools of MCP servers as typed Python
functions. The application registers the servers, decides about each call, and gets the output.

| to | use |
|---|---|
| run code and approve all its calls | `CodeExecutor.execute` |
| decide about each call, see output as it comes | `CodeExecutor.stream`, with its `ApprovalRequest`s |
| make the tools of an MCP server callable | `generate_mcp_sources`, `CodeExecutor.register_mcp_server` |
| decide by rules | `ApprovalPolicy` |
| answer many calls at once | `Grant` |
| log what code does | `AuditSettings` |
| write a package without registering a server | `apigen` |
| run cells for an agent framework, which asks in its own way | `ipybox_rs.cells` |
| check whether it works on this machine | `ipybox_rs.doctor.examine` |
| run code without tools | `ipybox_rs.kernel_mgr.client.KernelClient` |
| call tools for code in other processes | `ToolServer`, `ToolRunner`, `ApprovalClient` |
"""

from ipybox_rs._errors import HostError
from ipybox_rs.audit import AuditSettings
from ipybox_rs.code_exec import (
    CodeExecution,
    CodeExecutionChunk,
    CodeExecutionError,
    CodeExecutionResult,
    CodeExecutionTimeout,
    CodeExecutor,
    InstallError,
    KernelLostError,
    KernelUnavailableError,
    StartError,
    Truncated,
)
from ipybox_rs.grants import GivenGrant, Grant, OutsideGrantError
from ipybox_rs.kernel_mgr.client import ExecutionError, ExecutionResult, KernelClient
from ipybox_rs.kernel_mgr.server import KernelGateway
from ipybox_rs.mcp_apigen import (
    ApigenReport,
    GenerateError,
    Registry,
    apigen,
    generate_mcp_sources,
)
from ipybox_rs.policy import ApprovalPolicy
from ipybox_rs.tool_exec.approval.client import (
    ApprovalBatch,
    ApprovalClient,
    ApprovalClientError,
    ApprovalRequest,
    Origin,
    Provenance,
    Target,
    ToolAnnotations,
)
from ipybox_rs.tool_exec.client import (
    ApprovalRejectedError,
    ApprovalTimeoutError,
    ToolRunner,
    ToolRunnerError,
)
from ipybox_rs.tool_exec.server import ToolServer

__all__ = [
    "ApigenReport",
    "ApprovalBatch",
    "ApprovalClient",
    "ApprovalClientError",
    "ApprovalPolicy",
    "ApprovalRejectedError",
    "ApprovalRequest",
    "ApprovalTimeoutError",
    "AuditSettings",
    "CodeExecution",
    "CodeExecutionChunk",
    "CodeExecutionError",
    "CodeExecutionResult",
    "CodeExecutionTimeout",
    "CodeExecutor",
    "ExecutionError",
    "ExecutionResult",
    "GenerateError",
    "GivenGrant",
    "Grant",
    "HostError",
    "InstallError",
    "KernelClient",
    "KernelGateway",
    "KernelLostError",
    "KernelUnavailableError",
    "Origin",
    "OutsideGrantError",
    "Provenance",
    "Registry",
    "StartError",
    "Target",
    "ToolAnnotations",
    "ToolRunner",
    "ToolRunnerError",
    "ToolServer",
    "Truncated",
    "apigen",
    "generate_mcp_sources",
]
