"""The mailbox of a simulated connection: order, closing, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from dasklab.sim.cluster.mailbox import Mailbox
from distributed.comm.core import CommClosedError


def run(scenario: Callable[[Mailbox], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await scenario(Mailbox(asyncio.get_running_loop()))

    asyncio.run(main())


def test_messages_are_read_in_the_order_they_were_put() -> None:
    async def scenario(mailbox: Mailbox) -> None:
        for number in range(3):
            mailbox.put(number)
        assert [await mailbox.get() for _ in range(3)] == [0, 1, 2]
        assert mailbox.empty

    run(scenario)


def test_put_wakes_a_waiting_reader() -> None:
    async def scenario(mailbox: Mailbox) -> None:
        reader = asyncio.create_task(mailbox.get())
        await asyncio.sleep(0)
        mailbox.put("message")
        assert await reader == "message"

    run(scenario)


def test_close_is_read_after_earlier_messages_and_hides_later_ones() -> None:
    async def scenario(mailbox: Mailbox) -> None:
        mailbox.put("earlier")
        mailbox.close()
        assert mailbox.closing and not mailbox.exhausted
        mailbox.put("later")
        assert await mailbox.get() == "earlier"
        assert mailbox.exhausted
        for _ in range(2):
            with pytest.raises(CommClosedError):
                await mailbox.get()

    run(scenario)


def test_cancelled_reader_takes_no_message() -> None:
    async def scenario(mailbox: Mailbox) -> None:
        reader = asyncio.create_task(mailbox.get())
        await asyncio.sleep(0)
        mailbox.put("message")
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert await mailbox.get() == "message"

    run(scenario)
