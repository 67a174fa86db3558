from __future__ import annotations

import threading
from datetime import datetime
from typing import Any

import pytest

from hobnob.server.engine import sandbox
from hobnob.server.engine.sandbox import Program, TemplateBroken, TemplateError, TemplateRefused


def run(source: str, **variables: Any) -> str:
    return Program(source).render(variables)


MESSAGES = [
    {"role": "system", "content": " Be brief. "},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
]
TOOL = {"name": "f", "description": 'if a<b & c>d, "naïve" 日本'}


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ messages[0]['content'] | trim }}", "Be brief."),
        ("{% if messages[0].role == 'system' %}\nA\n{% endif %}\nB\n", "A\nB"),
        ("x\n    {% if true %}\n  y\n    {% endif %}\nz", "x\n  y\nz"),
        ("x\n    {%- if true -%}\n  y\n    {%- endif -%}\nz", "xyz"),
        ("{% for m in messages[::-1] %}{{ m.content[0] }}{% endfor %}", "HH "),
        ("{% for m in messages[1:] %}{{ loop.index0 }}{{ m.role }}{% endfor %}", "0user1assistant"),
        ("{% for m in messages %}{{ loop.first }},{{ loop.last }};{% endfor %}", None),
        (
            "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"
            "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{{ ns.last }}",
            "1",
        ),
        ("{% for k, v in tool.items() %}{{ k }};{% endfor %}", "name;description;"),
        ("{{ messages[1].content is string }} {{ tool is mapping }} {{ nope is defined }}", None),
        ("{{ tool | tojson }}", '{"name": "f", "description": "if a<b & c>d, \\"naïve\\" 日本"}'),
        ("{{ {'a': 'é'} | tojson(ensure_ascii=True) }}", '{"a": "\\u00e9"}'),
        ("{{ {'b': 1, 'a': [1]} | tojson(indent=2) }}", '{\n  "b": 1,\n  "a": [\n    1\n  ]\n}'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}", None),
        ("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}"
         "{% if i == 3 %}{% break %}{% endif %}{% endfor %}", "023"),
        ("{% generation %}{{ messages[2].content }}{% endgeneration %}!", "Hello!"),
        ("{% macro m(x, y='d') %}<{{ x }}{{ y }}>{% endmacro %}{{ m('a') }}{{ m('b', 'c') }}",
         "<ad><bc>"),
        ("{{ 'a' ~ 1 ~ none ~ true }}", "a1NoneTrue"),
        ("{{ '<think>x</think> y'.split('</think>')[-1].lstrip() }}", "y"),
        ("{{ ['a', 'b'] | join(', ') }} {{ 'a,b'.replace(',', ';') }} {{ '-'.join(['x', 'y']) }}",
         "a, b a;b x-y"),
        ("{{ '%s=%d' | format('n', 3) }} {{ '{}:{:>3}'.format('a', 7) }} {{ '%05.1f' % 2.5 }}",
         "n=3 a:  7 002.5"),
        ("{{ 'a\nb\n' | indent(2) }}|{{ 'a\nb' | indent(2, true) }}", "a\n  b\n|  a\n  b"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}",
         "['Hi']"),
        ("{{ (messages | length) * 2 + 1 }} {{ 2 ** 10 }} {{ 7 % 4 }} {{ 'ab' * 2 }}",
         "7 1024 3 abab"),
        ("{% set a, b = (1, 2) %}{{ a }}{{ b }} {{ 'user' in ('user', 'tool') }}", "12 True"),
        ("{{ strftime_now('%d %b %Y') }}", "02 Jan 2031"),
        ("{% set text %}{{ 1 }}-{{ 2 }}{% endset %}[{{ text }}]", "[1-2]"),
    ],
)  # fmt: skip
def test_a_feature_of_chat_templates_renders_as_hugging_face_renders_it(
    source: str, text: str | None
) -> None:
    program = Program(source, now=lambda: datetime(2031, 1, 2))
    rendered = program.render({"messages": MESSAGES, "tool": TOOL})
    expected = {
        "{% for m in messages %}{{ loop.first }}": "True,False;False,False;False,True;",
        "{{ messages[1].content is string }} {{ ": "True True False",
        "{{ {'b': 1, 'a': 2} | tojson(sort_keys=": '{"a":2,"b":1}',
    }
    assert rendered == (text if text is not None else expected[source[:39]])


def test_a_refusal_is_told_in_the_words_of_the_template() -> None:
    with pytest.raises(TemplateRefused, match=r"^The model's chat template says: Roles must alt"):
        run("{{ raise_exception('Roles must alternate') }}")


def test_the_words_of_a_template_cannot_drive_a_terminal() -> None:
    with pytest.raises(TemplateError) as caught:
        run("{{ raise_exception('a\x1b[2J\nb\x9d') }}")
    assert str(caught.value) == "The model's chat template says: a [2J b."


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("{% if x %}", "Unexpected end of template"),
        ("{% frobnicate %}", "frobnicate"),
        ("{% if x %}{{ 1 | frobnicate }}{% endif %}", "frobnicate"),
        ("\n\n{{ }", "line 3"),
        ("{{ " + "(" * 5000 + ")" * 5000 + "}}", "nested too deeply"),
        ("{% for i in x %}" * 30 + "{% endfor %}" * 30, "nested too deeply"),
        ("x" * (sandbox.MAX_SOURCE_CHARS + 1), "too long"),
    ],
)
def test_what_cannot_be_compiled_is_named_when_the_model_is_loaded(source: str, named: str) -> None:
    with pytest.raises(TemplateBroken, match=named):
        Program(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ nothing.at.all }}",
        "{{ messages[9].content }}",
        "{{ 1 + 'a' }}",
        "{{ 1 / 0 }}",
        "{{ unknown_function() }}",
        "{% include 'other' %}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ raise_exception.__globals__.x }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_what_goes_wrong_while_it_runs_is_one_sentence(source: str) -> None:
    with pytest.raises(TemplateError) as caught:
        run(source, messages=MESSAGES)
    assert str(caught.value).startswith("The model's chat template failed: ")
    assert "\n" not in str(caught.value)


TURNS = (
    "{% set ns = namespace(x='aa', n=3) %}{% for i in range(64) %}{% set ns.x = X %}{% endfor %}"
)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(10**9) %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(99) }}",
        "{% for i in range(9999) %}{{ 'a' * 30000 }}{% endfor %}",
        "{{ 'a' * 10**9 }}",
        "{{ 10**9 * 'a' }}",
        "{{ [0] * 10**9 }}",
        "{{ 10 ** 9999 }}",
        TURNS.replace("X", "ns.x ~ ns.x"),
        TURNS.replace("X", "ns.x + ns.x"),
        TURNS.replace("X", "ns.x * 2"),
        TURNS.replace("X", "[ns.x, ns.x] | join"),
        TURNS.replace("X", "'b'.join([ns.x, ns.x])"),
        TURNS.replace("X", "ns.x.replace('a', 'aa')"),
        TURNS.replace("X", "ns.x | replace('a', 'aa')"),
        TURNS.replace("X", "[ns.x, ns.x]"),
        TURNS.replace("X", "(ns.x, ns.x)"),
        TURNS.replace("X", "{'a': ns.x, 'b': ns.x}"),
        TURNS.replace("X", "dict(a=ns.x, b=ns.x)"),
        "{{ ('a\n' * 9999999) | indent(1000) }}",
        TURNS.replace("ns.x = X", "ns.n = ns.n * ns.n"),
        TURNS.replace("{% set ns.x = X %}", "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"),
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' | format(10**9, 1) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ '{:{}}'.format(1, 10**9) }}",
        "{{ 'a'.center(10**9) }}",
        "{{ 'a'.zfill(10**9) }}",
        "{{ [1] | tojson(indent=10**9) }}",
    ],
)
def test_a_template_that_wants_the_machine_ends_with_an_error(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "RENDER_SECONDS", 0.2)
    with pytest.raises(TemplateError):
        run(source)


def test_the_time_limit_counts_from_each_rendering_and_on_its_own_thread() -> None:
    program = Program("{% for i in range(3) %}{{ i }}{% endfor %}")
    texts: list[str] = []
    thread = threading.Thread(target=lambda: texts.append(program.render({})))
    thread.start()
    thread.join()
    assert [*texts, program.render({})] == ["012", "012"]
