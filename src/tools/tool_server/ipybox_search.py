"""Finds tools of the registered MCP servers: `from mcptools import search`.

Standard library only: it runs in every Python that the kernel or one of its children may start.
"""

from ipybox_runtime import ask_host


class Found(str):
    """An answer; as the last value of a cell it is shown as it is printed."""

    def __repr__(self):
        return str(self)


def search(query, server=None, limit=8):
    """Find tools of the registered MCP servers by words, and show how they are called, the best first.

    query: what the tool should do; "" lists the servers, or the groups of a server's tools
    server: the name of a server, or its package, to search no other
    limit: the most tools in the answer, 1 to 50; one alone is explained
    """
    if server is not None and not isinstance(server, str):
        server = server.__name__.rpartition(".")[2]
    request = {"query": query, "server": server, "limit": limit}
    return Found(ask_host("/search", request))
