"""Stand-ins for MCP servers of the documentation that speak to the internet: `servers.py NAME [--port PORT]`.

They have the tools, arguments and kinds of results that the documents use, and what they answer is made up. With a port
they serve Streamable HTTP at `/mcp`, else stdio.
"""

import json
import os
import sys

from mcp.server.fastmcp import FastMCP
from pydantic import BaseModel


class Image(BaseModel):
    title: str
    url: str


class Images(BaseModel):
    items: list[Image]


def brave_search(server):
    if not os.environ.get("BRAVE_API_KEY"):
        sys.exit("BRAVE_API_KEY is not set")

    @server.tool()
    def brave_image_search(query: str, count: int = 5) -> Images:
        """Searches for images"""
        items = [
            Image(title=f"{query} {n}", url=f"https://example.com/{n}.png")
            for n in range(count)
        ]
        return Images(items=items)

    @server.tool(structured_output=False)
    def brave_web_search(query: str, count: int = 5) -> str:
        """Searches the web"""
        return "\n".join(f"{query} {n}" for n in range(count))


def github(server):
    # No output schemas: as the real one, it answers with JSON in a text.
    @server.tool(structured_output=False)
    def search_repositories(query: str, sort: str = "stars", perPage: int = 30) -> str:
        """Searches repositories"""
        items = [
            {"name": f"repository-{n}", "stargazers_count": 100 - n}
            for n in range(perPage)
        ]
        return json.dumps({"query": query, "total_count": len(items), "items": items})

    @server.tool(structured_output=False)
    def list_commits(owner: str, repo: str, perPage: int = 30) -> str:
        """Lists commits"""
        return json.dumps(
            [
                {"sha": f"{n:040}", "commit": {"message": f"Change {n}\n\nWhy"}}
                for n in range(perPage)
            ]
        )


def fetch(server):
    @server.tool(structured_output=False)
    def fetch(url: str, max_length: int = 5000) -> str:
        """Fetches a page"""
        return f"Contents of {url}"[:max_length]


def main():
    kinds = {"brave_search": brave_search, "github": github, "fetch": fetch}
    name, *options = sys.argv[1:]
    port = int(options[options.index("--port") + 1]) if "--port" in options else None
    server = FastMCP(name, port=port or 8000, log_level="ERROR")
    kinds[name](server)
    server.run("streamable-http" if port else "stdio")


if __name__ == "__main__":
    main()
