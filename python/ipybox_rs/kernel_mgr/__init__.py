"""Kernels without tools."""
