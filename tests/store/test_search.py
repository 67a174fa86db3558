from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support_turns import ME, said

from hobnob.store import search
from hobnob.store.store import Store


async def found(store: Store, query: str) -> list[str]:
    """The texts of the hits, by their snippets without marks."""
    hits = await store.search(ME, query)
    return [hit.snippet.replace("\x02", "").replace("\x03", "") for hit in hits]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The quick brown fox", "QUICK"),
        ("The quick brown fox", "fox the"),
        ("The quick brown fox", "bro"),
        ("The quick brown fox", "rown"),
        ("The quick brown fox", '"quick brown"'),
        ("The quick brown fox", '"quick brown'),
        ("Ärger im Café", "arger cafe"),
        ("naïve résumé", "naive"),
        ("naive resume", "naïve"),
        ("Straße nach Ελλάδα и Москва", "МОСКВА ελλάδα straße"),
        ("this AND that OR nothing NEAR here NOT there", "AND"),
        ("this AND that OR nothing NEAR here NOT there", "that OR nothing"),
        ("this AND that OR nothing NEAR here NOT there", "NEAR NOT"),
        ("call foo.bar(baz) now", "foo.bar(baz)"),
        ("written in C++ and C#", "c++"),
        ("written in C++ and C#", "c#"),
        ("a -> b", "->"),
        ("50% off_sale", "50%"),
        ("50% off_sale", "f_s"),
        ("a back\\slash", "back\\s"),
        ("text:value -minus ^caret", "text:value -minus ^caret"),
        ("a* b* (c)", "a* (c)"),
        ("it's don't", "don't"),
        ("party 🎉 time", "🎉"),
        ("party🎉time", "🎉"),
        ("我想去东京塔看看", "东京"),
        ("東京タワーに行きたい", "タワー"),
        ("한국어로 이야기해요", "이야기"),
        ("ฉันชอบกินข้าว", "กิน"),
        ("mixed 東京 and English", "english 東京"),
        ("mixed 東京 and English", "東 eng"),
        ("a cat", "ca"),
        ("before\0after", "after"),
        ("before\0after", "before\0after"),
    ],
)
async def test_a_message_is_found_by(store: Store, text: str, query: str) -> None:
    turn = await said(store, text, "…")
    await said(store, "something else entirely", "…")
    assert [hit.message for hit in await store.search(ME, query)] == [turn.message.id]


@pytest.mark.parametrize(
    "query",
    ["giraffe", "fox giraffe", '"brown quick"', "東京", "🎉", "c++", "", " ", '"', '""', "%", "_"],
)
async def test_a_message_is_not_found_by(store: Store, query: str) -> None:
    await said(store, "The quick brown fox", "yes")
    assert await store.search(ME, query) == []


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    query=st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
        st.text('"*^:(){}-+\\%_ \0\x02ANDORNEAR東🎉#', max_size=40),
    )
)
async def test_any_text_is_a_query(store: Store, query: str) -> None:
    assert isinstance(await store.search(ME, query), list)
    assert isinstance(await store.conversations(ME, query=query), list)


async def test_a_huge_query_is_bounded(store: Store) -> None:
    await said(store, "word " * 10, "yes")
    for query in ("word " * 100_000, "東" * 100_000, '"' * 100_000, "a" * 100_000):
        await store.search(ME, query)
    assert len(search.Query.parse("word " * 100_000).terms) == search.MAX_TERMS


async def test_a_hit_says_where_it_is_and_marks_every_match(store: Store) -> None:
    turn = await said(store, "a fox and a Fox", "no")
    (hit,) = await store.search(ME, "fox")
    assert (hit.conversation, hit.message) == (turn.conversation.id, turn.message.id)
    assert (hit.title, hit.role, hit.created_at) == ("", "user", turn.message.created_at)
    assert hit.snippet == "a \x02fox\x03 and a \x02Fox\x03"


@pytest.mark.parametrize(
    ("text", "query", "snippet"),
    [
        ("The other man is he", "he man", "The other \x02man\x03 is \x02he\x03"),
        ("Café Ärger", "arger cafe", "\x02Café\x03 \x02Ärger\x03"),
        ("call foo.bar( baz", "foo(bar baz", "call \x02foo.bar\x03( \x02baz\x03"),
        ("brownish", "rown", "b\x02rown\x03ish"),
        ("Where is the 東京塔", "the 東京", "Where is \x02the\x03 \x02東京\x03塔"),
    ],
)
async def test_the_snippet_marks_what_was_found(
    store: Store, text: str, query: str, snippet: str
) -> None:
    await said(store, text, "no")
    assert [hit.snippet for hit in await store.search(ME, query)] == [snippet]


async def test_marks_in_the_text_itself_do_not_look_like_matches(store: Store) -> None:
    await said(store, "\x02fake\x03 fox 東京", "no")
    for query, marked in (("fox", "fake \x02fox\x03 東京"), ("東京", "fake fox \x02東京\x03")):
        (hit,) = await store.search(ME, query)
        assert hit.snippet.split() == marked.split()


@pytest.mark.parametrize("needle", ["needle", "針"])
@pytest.mark.parametrize("hay", ["hay ", "草"])
async def test_the_snippet_of_a_long_message_is_short_and_shows_the_match(
    store: Store, needle: str, hay: str
) -> None:
    await said(store, f"{hay * 5000}{needle} {hay * 5000}", "no")
    (hit,) = await store.search(ME, needle)
    assert f"\x02{needle}\x03" in hit.snippet or needle == "needle" and hay == "草"
    assert hit.snippet.count("\x02") == hit.snippet.count("\x03") == 1
    assert len(hit.snippet) < 350


async def test_a_snippet_is_one_line(store: Store) -> None:
    await said(store, "first\n\n\tsecond\r\nthird", "no")
    assert await found(store, "second") == ["first second third"]


async def test_better_matches_come_first_and_then_newer_ones(store: Store) -> None:
    for text in ("fox " + "word " * 50, "fox", "fox fox fox"):
        await said(store, text, "no")
    ranked = await found(store, "fox")
    assert ranked[0] == "fox fox fox"
    assert ranked[-1].startswith("fox word")
    for text in ("old 東京", "new 東京"):
        await said(store, text, "no")
    assert await found(store, "東京") == ["new 東京", "old 東京"]


async def test_the_number_of_hits_is_limited(store: Store) -> None:
    for i in range(5):
        await said(store, f"fox 東京 {i}", "no")
    for query in ("fox", "東京"):
        assert len(await store.search(ME, query, limit=3)) == 3


async def test_replies_are_found_too_and_only_their_owners(store: Store) -> None:
    mine = await said(store, "q", "the answer is platypus")
    await said(store, "q", "platypus", owner="other")
    assert [hit.message for hit in await store.search(ME, "platypus")] == [mine.reply.id]
    assert [hit.message for hit in await store.search(ME, "latypu")] == [mine.reply.id]
