"""Has the clock of Python show another time, so that a recorded session can be replayed. Standard library only.

Time passes as it does. Programs that code starts, and libraries that ask the system, see the real one.
"""

import ctypes
import datetime
import functools
import gc
import time
import warnings


def install(offset):
    """Have the clock be so many seconds ahead."""
    offset_ns = int(offset * 1_000_000_000)
    for name in ("time", "clock_gettime"):
        replace(name, ahead(getattr(time, name), offset))
        name_ns = f"{name}_ns"
        replace(name_ns, ahead(getattr(time, name_ns), offset_ns))
    for name in ("gmtime", "localtime", "ctime"):
        replace(name, with_time(getattr(time, name), 0, lambda: time.time()))
    for name, place in (("asctime", 0), ("strftime", 1)):
        replace(name, with_time(getattr(time, name), place, lambda: time.localtime()))
    # `today` asks `time.time` itself.
    utcnow = vars(datetime.datetime)["utcnow"]
    replace_method(datetime.datetime, "now", now)
    replace_method(datetime.datetime, "utcnow", ahead_in_utc(utcnow, offset))


class TimeFunction:
    """A function in place of one of `time`: as that, it becomes no method where a class has it."""

    def __init__(self, function, original):
        functools.update_wrapper(self, original)
        self._function = function

    def __call__(self, *given):
        return self._function(*given)

    def __reduce__(self):
        return self.__name__


def replace(name, function):
    setattr(time, name, TimeFunction(function, getattr(time, name)))


def ahead(clock, offset):
    """A clock, but those that are asked for by another number than that of the time of day, so much ahead."""

    def shown(*number):
        is_other = number and number[0] != time.CLOCK_REALTIME
        return clock(*number) if is_other else clock(*number) + offset

    return shown


def with_time(function, place, time_of_now):
    """A function that uses this time if it is given none, which is its argument at this place."""

    def shown(*given):
        if len(given) == place or given[place:] == (None,):
            given = *given[:place], time_of_now()
        return function(*given)

    return shown


@functools.wraps(datetime.datetime.now)
def now(cls, tz=None):
    return cls.fromtimestamp(time.time(), tz)


def ahead_in_utc(utcnow, offset):
    """The method, so many seconds ahead; its warnings are about the code that calls it."""

    @functools.wraps(datetime.datetime.utcnow)
    def shown(cls):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            given = utcnow.__get__(None, cls)()
        for warning in said:
            warnings.warn(warning.message, warning.category, stacklevel=2)
        return given + datetime.timedelta(seconds=offset)

    return shown


def replace_method(kind, name, function):
    """Replace a class method of a type of C: a subclass would be another type to the libraries that check it."""
    (members,) = gc.get_referents(kind.__dict__)
    members[name] = classmethod(function)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
