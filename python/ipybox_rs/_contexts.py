"""Bases of classes for `async with`: it starts and stops them, or connects and disconnects them."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Type checkers bring it along.
    from typing_extensions import Self


class Startable(abc.ABC):
    """It runs as long as `async with` lasts."""

    @abc.abstractmethod
    async def start(self) -> None: ...

    @abc.abstractmethod
    async def stop(self) -> None: ...

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()


class Connectable(abc.ABC):
    """It is connected as long as `async with` lasts."""

    @abc.abstractmethod
    async def connect(self) -> None: ...

    @abc.abstractmethod
    async def disconnect(self) -> None: ...

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.disconnect()
