"""Values that cannot be used are errors that name them."""

import pytest

from ipybox_rs import (
    ApprovalClient,
    AuditSettings,
    CodeExecutor,
    KernelClient,
    KernelGateway,
    Registry,
    ToolRunner,
    ToolServer,
    apigen,
    generate_mcp_sources,
)
from ipybox_rs.tool_exec.approval.server import ApprovalChannel


class Strange:
    """A value that is nothing that anybody expects."""


SECONDS = ["1", True, Strange(), -1, float("nan"), float("-inf"), [1]]
PORTS = ["1", True, 1.5, -1, 65536, Strange()]
TEXTS = [1, b"x", Strange()]
PATHS = [1, Strange(), ["x"], b"x", "nul\0"]
MAPPINGS = [1, "x", [1], Strange(), {1: "x"}]
VARIABLES = [*MAPPINGS, {"A": 1}, {"A": "nul\0"}, {"A=B": "x"}, {"": "x"}]
COUNTS = ["1", True, 1.5, -1, 1 << 64, Strange()]

CONSTRUCTED = [
    (CodeExecutor, "tool_server_host", [None, *TEXTS]),
    (CodeExecutor, "tool_server_port", PORTS),
    (CodeExecutor, "kernel_gateway_port", PORTS),
    (CodeExecutor, "kernel_env", VARIABLES),
    (CodeExecutor, "images_dir", PATHS),
    (CodeExecutor, "approval_timeout", SECONDS),
    (CodeExecutor, "connect_timeout", [None, *SECONDS]),
    (CodeExecutor, "sandbox_config", PATHS),
    (CodeExecutor, "log_level", [None, 10, "LOUD", ""]),
    (CodeExecutor, "working_dir", PATHS),
    (CodeExecutor, "kernel_init_timeout", [None, *SECONDS]),
    (CodeExecutor, "approval_policy", ["text", 1, Strange()]),
    (CodeExecutor, "audit", ["file", 1, Strange()]),
    (CodeExecutor, "python", PATHS),
    (CodeExecutor, "state_dir", PATHS),
    (CodeExecutor, "registry", ["x", 1, Strange()]),
    (CodeExecutor, "sandbox_backend", ["docker", None, 1]),
    (CodeExecutor, "changes", ["never", None, 1]),
    (
        CodeExecutor,
        "sandbox_install_domains",
        [None, 1, "example.com", [1], Strange()],
    ),
    (CodeExecutor, "limit_memory", COUNTS),
    (CodeExecutor, "limit_cpu", ["1", True, -1, 0, float("nan"), Strange()]),
    (CodeExecutor, "limit_processes", COUNTS),
    (CodeExecutor, "limit_disk", COUNTS),
    (CodeExecutor, "kernel_memory_limit", COUNTS),
    (CodeExecutor, "kernel_max_processes", COUNTS),
    (CodeExecutor, "kernel_max_file_size", COUNTS),
    (CodeExecutor, "kernel_gateway_url", TEXTS),
    (CodeExecutor, "kernel_hub_url", TEXTS),
    (CodeExecutor, "kernel_pod_url", TEXTS),
    (CodeExecutor, "kernel_pool", TEXTS),
    (ToolServer, "host", [None, *TEXTS]),
    (ToolServer, "port", PORTS),
    (ToolServer, "approval_timeout", SECONDS),
    (ToolServer, "connect_timeout", [None, *SECONDS]),
    (ToolServer, "log_level", [None, "LOUD"]),
    (ToolServer, "approval_policy", ["text"]),
    (ToolServer, "token", TEXTS),
    (ToolServer, "host_token", TEXTS),
    (KernelGateway, "host", [None, *TEXTS]),
    (KernelGateway, "port", PORTS),
    (KernelGateway, "sandbox_config", PATHS),
    (KernelGateway, "log_level", [None, "LOUD"]),
    (KernelGateway, "env", VARIABLES),
    (KernelGateway, "working_dir", PATHS),
    (KernelClient, "host", [None, *TEXTS]),
    (KernelClient, "port", PORTS),
    (KernelClient, "images_dir", PATHS),
    (KernelClient, "ping_interval", SECONDS),
    (KernelClient, "kernel_init_timeout", [None, *SECONDS]),
    (KernelClient, "token", TEXTS),
    (KernelClient, "kernel_name", TEXTS),
    (Registry, "connect_timeout", [None, *SECONDS]),
    (ApprovalChannel, "approval_timeout", SECONDS),
]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(kind, name, value) for kind, name, values in CONSTRUCTED for value in values],
)
def test_a_constructor_names_what_cannot_be_used(kind, name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        kind(**{name: value})


@pytest.mark.parametrize("value", TEXTS)
@pytest.mark.parametrize("name", ["kernel_gateway_token", "kernel_name"])
def test_options_of_a_gateway_are_checked(name, value):
    with pytest.raises(TypeError, match=name):
        CodeExecutor(kernel_gateway_url="http://localhost", **{name: value})


@pytest.mark.parametrize(
    "value", ["a secret", 5, {"X-Key": b"a secret"}, {5: "a secret"}]
)
def test_headers_of_a_gateway_are_checked_and_not_repeated(value):
    with pytest.raises(TypeError, match="kernel_gateway_headers") as error:
        CodeExecutor(
            kernel_gateway_url="http://localhost", kernel_gateway_headers=value
        )
    assert "secret" not in str(error.value)


async def test_names_of_headers_are_checked():
    executor = CodeExecutor(
        kernel_gateway_url="http://localhost",
        kernel_gateway_headers={"X Key": "a secret"},
    )
    with pytest.raises(Exception, match="`X…` is no name") as error:
        await executor.start()
    assert "kernel_gateway_headers" in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("value", TEXTS)
@pytest.mark.parametrize(
    "name", ["kernel_hub_token", "kernel_hub_server", "kernel_hub_user", "kernel_name"]
)
def test_options_of_a_hub_are_checked(name, value):
    with pytest.raises(TypeError, match=name):
        CodeExecutor(kernel_hub_url="http://localhost", **{name: value})


@pytest.mark.parametrize("value", [1, "text", [1], {1: 2}])
def test_options_for_the_start_of_a_server_are_checked(value):
    with pytest.raises(TypeError, match="kernel_hub_options"):
        CodeExecutor(kernel_hub_url="http://localhost", kernel_hub_options=value)


@pytest.mark.parametrize("value", TEXTS)
@pytest.mark.parametrize(
    "name", ["kernel_namespace", "kernel_router_url", "kernel_router_token"]
)
def test_options_of_a_pool_are_checked(name, value):
    with pytest.raises(TypeError, match=name):
        CodeExecutor(kernel_pool="pool", **{name: value})


@pytest.mark.parametrize("value", [None, *SECONDS])
@pytest.mark.parametrize("name", ["kernel_claim_timeout", "kernel_claim_lease"])
def test_times_of_a_pool_are_checked(name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        CodeExecutor(kernel_pool="pool", **{name: value})


@pytest.mark.parametrize("value", PORTS)
def test_the_port_of_a_pool_is_checked(value):
    with pytest.raises((TypeError, ValueError), match="kernel_pool_port"):
        CodeExecutor(kernel_pool="pool", kernel_pool_port=value)


@pytest.mark.parametrize("value", TEXTS)
@pytest.mark.parametrize("name", ["kernel_pod_token", "kernel_gateway_ca"])
def test_options_of_a_pod_are_checked(name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        CodeExecutor(kernel_pod_url="http://localhost", **{name: value})


@pytest.mark.parametrize("name", ["kernel_pod_url", "kernel_pool"])
def test_pods_exclude_other_places_and_an_interpreter(name):
    for other in ["kernel_gateway_url", "kernel_hub_url"]:
        with pytest.raises(ValueError, match=f"{name} excludes {other}"):
            CodeExecutor(**{name: "x", other: "http://localhost"})
    with pytest.raises(ValueError, match=f"python excludes .*{name}"):
        CodeExecutor(**{name: "x"}, python="/usr/bin/python3")


def test_a_hub_excludes_a_gateway_and_an_interpreter():
    url = "http://localhost"
    with pytest.raises(ValueError, match="kernel_hub_url"):
        CodeExecutor(kernel_hub_url=url, kernel_gateway_url=url)
    with pytest.raises(ValueError, match="python"):
        CodeExecutor(kernel_hub_url=url, python="/usr/bin/python3")


def test_a_gateway_excludes_an_interpreter():
    with pytest.raises(ValueError, match="python"):
        CodeExecutor(kernel_gateway_url="http://localhost", python="/usr/bin/python3")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("file", AuditSettings(1)),
        ("contents", AuditSettings("x", contents="all")),
        ("max_bytes", AuditSettings("x", max_bytes=-1)),
    ],
)
def test_audit_settings_are_checked(name, settings):
    with pytest.raises((TypeError, ValueError), match=name):
        CodeExecutor(audit=settings)


@pytest.mark.parametrize("value", [None, 1, "x"])
def test_an_approval_client_needs_a_function(value):
    with pytest.raises(TypeError, match="callback"):
        ApprovalClient(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("server_name", 1),
        ("server_params", "x"),
        ("host", None),
        ("port", "1"),
        ("token", 1),
    ],
)
def test_a_tool_runner_names_what_cannot_be_used(name, value):
    with pytest.raises(TypeError, match=name):
        ToolRunner(**{"server_name": "x", name: value})


DEEP = {"x": 1}
for _ in range(200):
    DEEP = {"x": DEEP}

LOOP = {}
LOOP["x"] = LOOP

UNWRITABLE = [
    {"x": Strange()},
    {"x": float("nan")},
    {"x": 10**400},
    {"x": [{"y": -(2**63) - 1}]},
    {"x": "\ud800"},
    {"x": b"bytes"},
    {"x": {("a", "b"): 1}},
    DEEP,
    LOOP,
]


@pytest.mark.parametrize(
    "value", [*MAPPINGS, *UNWRITABLE], ids=lambda value: type(value).__name__
)
async def test_server_parameters_that_cannot_be_used_are_named(value):
    with pytest.raises((TypeError, ValueError), match="server_params"):
        await generate_mcp_sources("probe", value, "mcptools")
    with pytest.raises((TypeError, ValueError), match="server_params"):
        await apigen("probe", "mcptools", server_params=value)
    async with CodeExecutor() as executor:
        with pytest.raises((TypeError, ValueError), match="server_params"):
            await executor.register_mcp_server("probe", value)
        # Nothing else has suffered.
        assert (await executor.execute("1")).text == "1"


@pytest.mark.parametrize(
    "value", [{}, {"command": 1}, {"command": "x", "url": "http://x"}, {"url": "x"}]
)
async def test_server_parameters_without_sense_are_a_value_error(value):
    with pytest.raises(ValueError, match="^failed to read `server_params`"):
        await generate_mcp_sources("probe", value, "mcptools")


async def test_server_parameters_can_hold_paths_and_other_mappings(probe, workspace):
    from pathlib import Path
    from types import MappingProxyType

    parameters = {
        **probe,
        "command": Path(probe["command"]),
        "cwd": workspace.directory,
    }
    parameters["env"] = MappingProxyType({"A": "b"})
    assert "echo" in await generate_mcp_sources(
        "probe", MappingProxyType(parameters), "mcptools"
    )


@pytest.mark.parametrize(
    "name", ["", "A", "a b", "a-b", "class", "1a", "../a", "a/b", "a\0", "ä", "ipybox"]
)
async def test_a_server_name_that_cannot_be_used_is_a_value_error(name, probe):
    with pytest.raises(ValueError):
        await generate_mcp_sources(name, probe, "mcptools")
    with pytest.raises(TypeError, match="server_name"):
        await generate_mcp_sources(1, probe, "mcptools")


@pytest.mark.parametrize("value", [*PATHS, "lone \ud800"])
async def test_a_root_dir_that_cannot_be_used_is_named(value, probe):
    with pytest.raises((TypeError, ValueError), match="root_dir"):
        await generate_mcp_sources("probe", probe, value)


@pytest.mark.parametrize("value", ["x", 1])
async def test_a_registry_that_is_none_is_named(value, probe):
    with pytest.raises(TypeError, match="registry"):
        await generate_mcp_sources("probe", probe, "mcptools", registry=value)


async def test_apigen_needs_one_source(probe):
    with pytest.raises(ValueError, match="tools"):
        await apigen("probe", "mcptools")
    with pytest.raises(ValueError, match="tools"):
        await apigen("probe", "mcptools", server_params=probe, tools="tools.json")


@pytest.mark.parametrize(
    "value",
    [*UNWRITABLE[:5], DEEP, "x", None, [1]],
    ids=lambda value: type(value).__name__,
)
async def test_tool_arguments_that_cannot_be_used_are_an_error(value, probe):
    async with ToolServer(port=0) as server:
        runner = ToolRunner("probe", probe, port=server.port)
        with pytest.raises((TypeError, ValueError)):
            await runner.run("echo", value)
        with pytest.raises(TypeError, match="tool_name"):
            await runner.run(1, {})
        assert await runner.run("echo", {"text": "hi"}) == "hi"


@pytest.mark.parametrize("value", SECONDS)
async def test_the_timeout_of_code_is_checked(value):
    async with CodeExecutor() as executor:
        with pytest.raises((TypeError, ValueError), match="timeout"):
            await executor.execute("1", timeout=value)
        with pytest.raises((TypeError, ValueError), match="timeout"):
            executor.stream("1", timeout=value)


@pytest.mark.parametrize("value", COUNTS)
async def test_max_output_chars_is_checked(value):
    async with CodeExecutor() as executor:
        with pytest.raises((TypeError, ValueError), match="max_output_chars"):
            await executor.execute("1", max_output_chars=value)
        with pytest.raises((TypeError, ValueError), match="max_output_chars"):
            executor.stream("1", max_output_chars=value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("working_dir", "lone \ud800"),
        ("kernel_env", {"A": "\ud800"}),
        ("kernel_max_processes", 1 << 40),
        ("working_dir", "/proc/nothing"),
        ("python", "/nonexistent/python"),
        ("sandbox_config", "/nonexistent/policy.json"),
        ("tool_server_host", "example.invalid"),
        ("tool_server_host", "8.8.8.8"),
    ],
)
async def test_an_executor_that_cannot_start_says_why(name, value):
    given = value if isinstance(value, str) else name
    with pytest.raises((ValueError, RuntimeError)) as failed:
        await CodeExecutor(**{name: value}, sandbox=name == "sandbox_config").start()
    assert name in str(failed.value) or given in str(failed.value)
