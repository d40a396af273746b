"""`from mcptools import batch`: the function, in the place of this module."""

import sys

from ipybox_batch import batch

sys.modules[__name__] = batch
