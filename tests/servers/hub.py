"""A small MCP server that answers like a forge's: JSON as text, without an output schema.

Its answers are always the same. The commits of one repository have no author, as those of deleted users.
"""

import json

from mcp.server.fastmcp import FastMCP

server = FastMCP("hub", log_level="CRITICAL")

REPOSITORIES = [
    {"name": "linux", "stargazers_count": 215_000, "language": "C"},
    {"name": "uemacs", "stargazers_count": 1_900, "language": "C"},
    {"name": "1590A", "stargazers_count": 480, "language": None},
]


@server.tool(structured_output=False)
def search_repositories(query: str, perPage: int = 30) -> str:
    """Find repositories by name, topic or owner"""
    items = REPOSITORIES[:perPage] if query == "user:torvalds" else []
    return json.dumps({"total_count": len(items), "items": items})


@server.tool(structured_output=False)
def list_commits(owner: str, repo: str, perPage: int = 30) -> str:
    """List the commits of a branch, the newest first"""
    author = None if repo == "subsurface" else {"login": owner, "id": 1024025}
    commits = [
        {
            "sha": f"{number:040x}",
            "commit": {"message": f"{repo}: change {number}"},
            "author": author,
        }
        for number in range(perPage)
    ]
    return json.dumps(commits)


if __name__ == "__main__":
    server.run()
