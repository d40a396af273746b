"""`from mcptools import save`: the function, in the place of this module."""

import sys

from ipybox_actions import save

sys.modules[__name__] = save
