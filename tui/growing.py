"""Growing without laying out and drawing the screen twice.

Textual lays out again whenever a widget's virtual size has changed in a layout, which for one
that grows with its content is every time, and for nothing: the second layout finds what the
first one did. And it draws scroll bars a second time after every layout, with all rows beside
them. Each was about half the cost of a stream, measured with Textual 8.2.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.geometry import Size

if TYPE_CHECKING:
    from textual.widget import Widget as _Base
else:  # of a class with two widgets as its bases Textual takes only the first one's rules
    _Base = object


class Growing(_Base):
    """Mix it in before a widget class whose height is that of its content."""

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        updated = super()._size_updated(size, virtual_size, container_size, layout=False)
        if updated and self.show_vertical_scrollbar:
            # The layout that called this draws all of the widget, the bar with it.
            self.vertical_scrollbar._repaint_required = False
        return updated
