"""Which of a conversation's messages are on the screen's list: a window that moves. Pure."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_MESSAGES = 20
STEP_MESSAGES = 20
MOST_MESSAGES = 160
"""More than this are never mounted at once, however far one scrolls."""


@dataclass(frozen=True, slots=True)
class Window:
    """Messages low..high-1 of `count`."""

    low: int
    high: int
    count: int

    @classmethod
    def last(cls, count: int) -> Window:
        return cls(max(0, count - FIRST_MESSAGES), count, count)

    @classmethod
    def around(cls, at: int, count: int) -> Window:
        low = max(0, min(at - FIRST_MESSAGES // 2, count - FIRST_MESSAGES))
        return cls(low, min(count, low + FIRST_MESSAGES), count)

    @property
    def earlier(self) -> int:
        """Messages before the window."""
        return self.low

    @property
    def later(self) -> int:
        return self.count - self.high

    def up(self) -> Window:
        low = max(0, self.low - STEP_MESSAGES)
        return Window(low, min(self.high, low + MOST_MESSAGES), self.count)

    def down(self) -> Window:
        high = min(self.count, self.high + STEP_MESSAGES)
        return Window(max(self.low, high - MOST_MESSAGES), high, self.count)

    def grown_before(self, count: int) -> Window:
        """So many messages were added at the beginning; the same ones are in the window."""
        return Window(self.low + count, self.high + count, self.count + count)

    def grown(self) -> Window:
        """One message was added at the end. A window that showed the end still does."""
        if self.later:
            return Window(self.low, self.high, self.count + 1)
        high = self.count + 1
        return Window(max(self.low, high - MOST_MESSAGES), high, high)
