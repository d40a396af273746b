"""The sources of the data in calls."""

from ipybox_rs import ApprovalPolicy, ApprovalRequest, CodeExecutor, Origin

POLICY = """
[labels]
probe = "untrusted"

[[rule]]
tool = "echo"
effect = "allow"
"""

CODE = """
from mcptools.probe import echo, fail
text = echo.run(text="the ticket is TICKET-4f9a77c21b, for ann.smith@example.com")
try:
    fail.run(reason=text.split()[-1])
except Exception as error:
    print(type(error).__name__)
"""


async def test_a_request_says_where_its_data_comes_from(probe):
    async with CodeExecutor(approval_policy=ApprovalPolicy(POLICY)) as executor:
        await executor.register_mcp_server("probe", probe)
        known = []
        async for item in executor.stream(CODE):
            if isinstance(item, ApprovalRequest):
                known.append(item.provenance)
                assert await item.reject()
        assert item.text == "ApprovalRejectedError"
        [known] = known
        assert known.origins == (
            Origin("reason", "probe", "echo", "untrusted", values=1),
        )
        assert known.read == {"untrusted": ["probe"]}
