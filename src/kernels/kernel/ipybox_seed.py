"""Seeds what Python draws at random, so that a recorded session can be replayed. Standard library only.

The seed is in a file that people share: `secrets`, `os.urandom` and generators that code makes without a seed stay as they
are.
"""

import functools
import itertools
import os
import random

from ipybox_loading import after_import


def install(seed):
    random.seed(seed)
    after_import("numpy.random", functools.partial(seed_numpy, seed=seed))
    after_import("uuid", functools.partial(seed_uuids, seed=seed))


def seed_numpy(module, seed):
    """Seed NumPy's global generator, and those that code makes."""
    module.seed(seed)
    make = module.default_rng
    seeds = itertools.count(seed)

    @functools.wraps(make)
    def default_rng(seed=None):
        return make(next(seeds) if seed is None else seed)

    module.default_rng = default_rng


def seed_uuids(module, seed):
    """Have `uuid4` draw from a generator of its own; in forked processes, which must not draw the same, from the system's."""
    source = random.Random(seed)
    os.register_at_fork(after_in_child=source.seed)
    make = module.uuid4

    @functools.wraps(make)
    def uuid4():
        return module.UUID(int=source.getrandbits(128), version=4)

    module.uuid4 = uuid4
