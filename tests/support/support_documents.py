"""Markdown documents that are hard to draw, and a strategy that makes more of them."""

from __future__ import annotations

from hypothesis import strategies as st

HOSTILE = (
    "A\x1b]52;c;cHduZWQ=\x1b\\B\x1b]0;owned\x07C\x1b[2J\x1b[31mD\x9d0;x\x9cE\rF\x08G "
    "see [/etc/hosts] and [/] and [bold]x and [@click=app.quit]here[/] \u202e\u2028\x00\ud800"
)

DOCUMENTS = {
    "fence in a list": "- a\n\n  ```py\n  x = 1\n  ```\n- b\n\n1. c\n   ```\n   d\n   ```\n",
    "reference after use": "see [a][b]\n\n[b]: http://example.org\n",
    "four backticks": "````md\n```py\nx\n```\n````\nafter\n",
    "tilde": "~~~\ncode\n~~~\n",
    "setext": "Title\n=====\n\nSub\n---\ntext\n",
    "table": "| a | b |\n|---|--:|\n| 1 | `x|y` |\n| long cell text | 2 | extra |\n\nafter\n",
    "quote": "> a\nlazy\n> - b\n>   c\n\nd\n",
    "html": "<div>\n<b>x</b>\n</div>\n\nList<int> and &lt;\n",
    "cjk": "你好，世界。**粗体**\n\n- 👩‍👩‍👧‍👦 ✔️ 🇩🇪 e᷄ ﷽ עברית\n",
    "windows": "a\r\nb\r\n\r\n- c\r\n",
    "separators": "a\u2028b\x0cc\x85d\n",
    "math": "$$\nx^2\n$$\n\n\\[ y \\]\n\nInline $a_b$ and \\(c*d*\\)\n",
    "unclosed": "```python\ndef f():\n    pass\n",
    "closing fence is the end": "```\nx\n```",
    "rules": "a\n\n---\n***\n* * *\n",
    "hostile": HOSTILE,
    "empty": "",
    "blank": "\n\n\n",
    "long line": "word " * 900,
    "long word": "x" * 5000,
    "long table": "|a|b|\n|-|-|\n" + "|1|some text|\n" * 60,
    "many items": "".join(f"{n}. item **{n}**\n" for n in range(60)),
}

_PIECES = [
    "a", "word ", "\n", "\n\n", "- ", "  - ", "1. ", "> ", "```", "```py\n", "~~~", "    ", "\t",
    "# ", "---", "===", "|", "| a | b |\n|---|---|\n", "`", "**", "*", "_", "[x](http://y)", "$$",
    "\\[", "\\", "<b>", "\r\n", "\r", "你", "👩‍👧", "\x1b[31m", "![i](j)", "\u2028", "  \n", "5) ",
]  # fmt: skip

MARKDOWN = st.lists(st.sampled_from(_PIECES), max_size=40).map("".join)
