"""The names and parameters that the original's documentation has."""

import importlib
import inspect

import pytest

NOTHING = inspect.Parameter.empty

DOCUMENTED = {
    "ipybox.CodeExecutor": [
        ("tool_server_host", "localhost"),
        ("tool_server_port", None),
        ("kernel_gateway_host", "localhost"),
        ("kernel_gateway_port", None),
        ("kernel_env", None),
        ("images_dir", None),
        ("approval_timeout", 60),
        ("connect_timeout", 30),
        ("sandbox", False),
        ("sandbox_config", None),
        ("log_level", "WARNING"),
    ],
    "ipybox.CodeExecutor.execute": [("code", NOTHING), ("timeout", 120)],
    "ipybox.CodeExecutor.reset": [],
    "ipybox.CodeExecutor.start": [],
    "ipybox.CodeExecutor.stop": [],
    "ipybox.CodeExecutor.stream": [
        ("code", NOTHING),
        ("timeout", 120),
        ("chunks", False),
    ],
    "ipybox.CodeExecutionChunk": [("text", NOTHING)],
    "ipybox.CodeExecutionResult": [("text", NOTHING), ("images", NOTHING)],
    "ipybox.generate_mcp_sources": [
        ("server_name", NOTHING),
        ("server_params", NOTHING),
        ("root_dir", NOTHING),
    ],
    "ipybox.tool_exec.server.ToolServer": [
        ("host", "localhost"),
        ("port", 8900),
        ("approval_required", False),
        ("approval_timeout", 60),
        ("connect_timeout", 30),
        ("log_to_stderr", False),
        ("log_level", "INFO"),
    ],
    "ipybox.tool_exec.server.ToolServer.join": [],
    "ipybox.tool_exec.server.ToolServer.start": [],
    "ipybox.tool_exec.server.ToolServer.stop": [],
    "ipybox.tool_exec.client.ToolRunner": [
        ("server_name", NOTHING),
        ("server_params", NOTHING),
        ("host", "localhost"),
        ("port", 8900),
    ],
    "ipybox.tool_exec.client.ToolRunner.reset": [],
    "ipybox.tool_exec.client.ToolRunner.run": [
        ("tool_name", NOTHING),
        ("tool_args", NOTHING),
    ],
    "ipybox.tool_exec.client.ToolRunner.run_sync": [
        ("tool_name", NOTHING),
        ("tool_args", NOTHING),
    ],
    "ipybox.tool_exec.approval.client.ApprovalClient": [
        ("callback", NOTHING),
        ("host", "localhost"),
        ("port", 8900),
    ],
    "ipybox.tool_exec.approval.client.ApprovalClient.connect": [],
    "ipybox.tool_exec.approval.client.ApprovalClient.disconnect": [],
    "ipybox.tool_exec.approval.client.ApprovalRequest": [
        ("server_name", NOTHING),
        ("tool_name", NOTHING),
        ("tool_args", NOTHING),
        ("respond", NOTHING),
    ],
    "ipybox.tool_exec.approval.client.ApprovalRequest.accept": [],
    "ipybox.tool_exec.approval.client.ApprovalRequest.reject": [],
    "ipybox.tool_exec.approval.server.ApprovalChannel": [
        ("approval_required", False),
        ("approval_timeout", 60),
    ],
    "ipybox.tool_exec.approval.server.ApprovalChannel.connect": [
        ("websocket", NOTHING)
    ],
    "ipybox.tool_exec.approval.server.ApprovalChannel.disconnect": [],
    "ipybox.tool_exec.approval.server.ApprovalChannel.join": [("timeout", 5)],
    "ipybox.tool_exec.approval.server.ApprovalChannel.request": [
        ("server_name", NOTHING),
        ("tool_name", NOTHING),
        ("tool_args", NOTHING),
    ],
    "ipybox.kernel_mgr.server.KernelGateway": [
        ("host", "localhost"),
        ("port", 8888),
        ("sandbox", False),
        ("sandbox_config", None),
        ("log_level", "INFO"),
        ("log_to_stderr", False),
        ("env", None),
    ],
    "ipybox.kernel_mgr.server.KernelGateway.join": [],
    "ipybox.kernel_mgr.server.KernelGateway.start": [],
    "ipybox.kernel_mgr.server.KernelGateway.stop": [("timeout", 10)],
    "ipybox.kernel_mgr.client.KernelClient": [
        ("host", "localhost"),
        ("port", 8888),
        ("images_dir", None),
        ("ping_interval", 10),
    ],
    "ipybox.kernel_mgr.client.KernelClient.connect": [
        ("retries", 10),
        ("retry_interval", 1.0),
    ],
    "ipybox.kernel_mgr.client.KernelClient.disconnect": [],
    "ipybox.kernel_mgr.client.KernelClient.execute": [
        ("code", NOTHING),
        ("timeout", 120),
    ],
    "ipybox.kernel_mgr.client.KernelClient.reset": [],
    "ipybox.kernel_mgr.client.KernelClient.stream": [
        ("code", NOTHING),
        ("timeout", 120),
    ],
    "ipybox.kernel_mgr.client.ExecutionResult": [
        ("text", NOTHING),
        ("images", NOTHING),
    ],
}

IMPORTS = [
    "ipybox.ApprovalRequest",
    "ipybox.CodeExecutionChunk",
    "ipybox.CodeExecutionError",
    "ipybox.CodeExecutionResult",
    "ipybox.CodeExecutor",
    "ipybox.generate_mcp_sources",
    "ipybox.code_exec.CodeExecutor",
    "ipybox.code_exec.CodeExecutionResult",
    "ipybox.kernel_mgr.client.ExecutionError",
    "ipybox.kernel_mgr.client.ExecutionResult",
    "ipybox.kernel_mgr.client.KernelClient",
    "ipybox.kernel_mgr.server.KernelGateway",
    "ipybox.tool_exec.approval.client.ApprovalClient",
    "ipybox.tool_exec.approval.client.ApprovalRequest",
    "ipybox.tool_exec.approval.client.ApprovalCallback",
    "ipybox.tool_exec.approval.server.ApprovalChannel",
    "ipybox.tool_exec.client.ToolRunner",
    "ipybox.tool_exec.client.ToolRunnerError",
    "ipybox.tool_exec.server.ToolServer",
    "ipybox.utils.arun",
    "ipybox.utils.find_free_port",
]


def find(path):
    """The object of this package that has the name of one of the original."""
    found, words = importlib.import_module("ipybox_rs"), path.split(".")[1:]
    for number, word in enumerate(words):
        if not hasattr(found, word):
            importlib.import_module(".".join(["ipybox_rs", *words[: number + 1]]))
        found = getattr(found, word)
    return found


@pytest.mark.parametrize("path", DOCUMENTED)
def test_parameters_begin_with_the_documented_ones(path):
    of = inspect.signature(find(path)).parameters.values()
    parameters = [(one.name, one.default) for one in of if one.name != "self"]
    documented = DOCUMENTED[path]
    assert [name for name, _ in parameters][: len(documented)] == [
        name for name, _ in documented
    ]
    for (_, default), (name, expected) in zip(parameters, documented):
        # What had to be given may have a default by now.
        assert expected in (NOTHING, default), name
    for one in [one for one in of if one.name != "self"][len(documented) :]:
        # What is new is given by name, or follows everything and has a default.
        assert one.kind is one.KEYWORD_ONLY or one.default is not NOTHING


@pytest.mark.parametrize("path", IMPORTS)
def test_documented_names_can_be_imported(path):
    assert find(path) is not None


@pytest.mark.parametrize(
    "path",
    [path for path in DOCUMENTED if path.rpartition(".")[2] in
     ("execute", "reset", "start", "stop", "join", "run", "connect", "disconnect", "accept",
      "reject", "request", "generate_mcp_sources")],
)  # fmt: skip
def test_what_is_documented_as_a_coroutine_is_one(path):
    assert inspect.iscoroutinefunction(find(path))


def test_errors_have_the_documented_bases():
    for path in (
        "ipybox.CodeExecutionError",
        "ipybox.kernel_mgr.client.ExecutionError",
        "ipybox.tool_exec.client.ToolRunnerError",
    ):
        assert issubclass(find(path), Exception)
    runner = importlib.import_module("ipybox_rs.tool_exec.client")
    assert issubclass(runner.ApprovalRejectedError, runner.ToolRunnerError)
    assert issubclass(runner.ApprovalTimeoutError, runner.ToolRunnerError)


def test_constructors_keep_what_they_are_given_as_attributes():
    executor = find("ipybox.CodeExecutor")(images_dir="plots", kernel_env={"A": "b"})
    values = {
        name: getattr(executor, name) for name, _ in DOCUMENTED["ipybox.CodeExecutor"]
    }
    assert values["images_dir"] == "plots"
    assert values["kernel_env"] == {"A": "b"}
    assert values["approval_timeout"] == 60
    for path in (
        "ipybox.tool_exec.server.ToolServer",
        "ipybox.kernel_mgr.client.KernelClient",
        "ipybox.kernel_mgr.server.KernelGateway",
    ):
        made = find(path)()
        for name, default in DOCUMENTED[path]:
            assert getattr(made, name) == (default or {} if name == "env" else default)


def test_everything_in_all_is_there():
    package = importlib.import_module("ipybox_rs")
    assert package.__all__ == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name).__doc__, name
