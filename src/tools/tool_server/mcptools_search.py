"""`from mcptools import search`: the function, in the place of this module."""

import sys

from ipybox_search import search

sys.modules[__name__] = search
