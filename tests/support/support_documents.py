"""Markdown documents that are hard to draw, and a strategy that makes more of them."""

from __future__ import annotations

from hypothesis import strategies as st

HOSTILE = (
    "A\x1b]52;c;cHduZWQ=\x1b\\B\x1b]0;owned\x07C\x1b[2J\x1b[31mD\x9d0;x\x9cE\rF\x08G "
    "see [/etc/hosts] and [/] and [bold]x and [@click=app.quit]here[/] \u202e\u2028\x00\ud800"
)

HOSTILE_TEXTS = {
    "escapes": HOSTILE,
    "markup": "A[/]B[b]C[x=1]D[link=y]E[/]F$accent G[@click=app.quit]here[/] \\[ [[ ]] [not a tag]",
    "controls": "A\x00B\x07C\x1bD\x7fE\x9bF\tG" + "".join(map(chr, (*range(32), *range(127, 160)))),
    "directions": "A\u202eB\u2066C\u200fD\u061cE\u202dF\u2069G שלום",
    "surrogates": "A\ud800B\udfffC\udcffDEFG",
    "joiners": "A" + "\u200d" * 300 + "B" + "\u0301" * 300 + "C\ufe0f\ufe0fDEFG",
    "huge": "ABCDEFG " + "huge " * 20_000,
    "huge word": "ABCDEFG" + "w" * 100_000,
}
"""Each with the letters A to G, in this order, that must be seen wherever there is room."""

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
    "answer": (
        "# Sorting\n\nThere are *two* ways:\n\n1. **In place**, with `list.sort()`:\n\n"
        "   ```python\n   xs.sort(key=len)\n   ```\n\n2. Into a new list:\n\n"
        "   ```python\n   ys = sorted(xs)\n   ```\n\n> Both are stable.\n\nWhich one do you need?\n"
    ),
    "items with paragraphs": "- one\n\n  more of one\n\n- two\n  - three\n\n    more of three\n",
    "deep list": "".join(f"{'  ' * n}- level {n}\n" for n in range(12)),
    "list right after text": "Needed:\n- flour\n- eggs\nand some salt\n",
    "numbers that jump": "7. seven\n8. eight\n\n\n3. three\n1986. a year\n",
    "marks of every kind": "* star\n+ plus\n- minus\n\n1) bracket\n2. dot\n",
    "tasks": "- [ ] to do\n- [x] done\n  - [ ] inside\n",
    "table of wide letters": "| 名前 | 値 |\n|:---|---:|\n| 東京 | `1` |\n| ＡＢＣ | **2** |\n",
    "table without edges": "a | b\n--|--\n1 | 2\nno bar\n",
    "table in a list": "- see\n\n  | a | b |\n  |---|---|\n  | 1 | 2 |\n- next\n",
    "table that is none": "a | b\nc | d\n\n| x |\n",
    "quotes in quotes": "> a\n>> b\n>>> c\n> a again\n\n> - item\n> > quote in it\n",
    "code in a quote": "> ```sh\n> $ ls -la\n> ```\n> done\n",
    "fence of another length": "`````\n````\n```\nx\n```\n````\n`````\ny\n",
    "two languages": '```rust\nfn main() {}\n```\n```json\n{"a": [1, 2]}\n```\n',
    "difference": "```diff\n--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n```\n",
    "tabs": "\tindented\n\n-\titem\n\n\tmore\n\n```\n\ta\tb\n```\n",
    "emphasis": "**bold _both_ bold** *it*al*ic* __x__ _y_ ~~z~~ 2*3*4 a_b_c \\*no\\* ***all***\n",
    "code spans": "`a` ``b ` c`` `unclosed\n\n`` ` `` and `x\ny`\n",
    "links": (
        '[a](http://x.example/a_(b)) <http://y.example> ![i](z.png) [t](u "v") [r]: not one\n'
        "https://example.org/a*b*c?d=e&f=g [x](javascript:alert(1))\n"
    ),
    "entities": "a &amp; b &lt;tag&gt; <b>bold</b> <br> <!-- note --> &#x1b;[31m Vec<Option<T>>\n",
    "breaks": "a  \nb\\\nc\nd\n\n\n\n\ne\n   f\n",
    "headings": "# One #\n## Two\ntext\n### *Three*\n#Not\n####### Not\nFour\n--\n",
    "formulas": (
        "Then \\( a^2 \\) is $5 or $b_1$:\n\n$$a = b$$ is said\n\n"
        "\\[\n\\frac{1}{2}\n\\]\n$$\n1\n\n2\n$$\n"
    ),
    "thinking": "<think>\nlet me\n</think>\n\nThe answer is 4.\n",
    "conversation": "User: hi\nAssistant: hello\n\n---\n\n**User:** bye\n",
    "right to left": "שלום **עולם** `code` مرحبا\n\n- פריט\n\n\u202eoverride\u202c\n",
    "flood of accents": "Z" + "\u0301\u0327" * 200 + "algo\n\n- e\u0301" + "\u200d" * 50 + "x\n",
    "address": "see https://example.org/" + "very/" * 80 + "long\n",
    "no end of line": "- a\n- b\n\nlast **words",
    "only spaces": "   \n\t\n  ",
    "marks alone": "-\n\n*\n\n#\n\n>\n\n1.\n\n|\n",
}

_PIECES = [
    "a", "word ", "\n", "\n\n", "- ", "  - ", "1. ", "> ", "```", "```py\n", "~~~", "    ", "\t",
    "# ", "---", "===", "|", "| a | b |\n|---|---|\n", "`", "**", "*", "_", "[x](http://y)", "$$",
    "\\[", "\\", "<b>", "\r\n", "\r", "你", "👩‍👧", "\x1b[31m", "![i](j)", "\u2028", "  \n", "5) ",
]  # fmt: skip

MARKDOWN = st.lists(st.sampled_from(_PIECES), max_size=40).map("".join)
