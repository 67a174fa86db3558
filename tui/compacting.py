"""The chat's `/compact`: the older part is summed up while the screen stays as it is."""

from __future__ import annotations

from textual import work

from hobnob.tui import compaction
from hobnob.tui.notice import ClientError
from hobnob.tui.versions import Asked, Versions


class Compacting(Versions):
    def compact(self) -> None:
        if self.busy:
            self.say_busy()
            return
        self._asked = Asked(reply=True)
        self._compact(self._asked)

    @work(group="versions")
    async def _compact(self, asked: Asked) -> None:
        def tell(words: str) -> None:
            self.say_trouble(f"{words[:1].upper()}{words[1:]} Esc stops it.")

        before = self.talk.entries[-1] if self.talk.entries else None
        try:
            said = await compaction.compact(self.talk, asked, tell)
            if self.talk.entries and self.talk.entries[-1] is not before:
                await self._show()
        except ClientError as error:
            self.say_trouble(f"Not compacted: {error.message}")
        else:
            self.say_trouble("")
            self.app.notify(said, timeout=8, markup=False)
        finally:
            self._answered(asked)
        self._go_on()
