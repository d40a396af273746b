"""The approval of tool calls."""
