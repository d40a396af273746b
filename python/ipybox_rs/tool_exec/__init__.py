"""Tool servers and their clients."""
