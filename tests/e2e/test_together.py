"""Several clients at once, the official clients, and what the processes weigh."""

from __future__ import annotations

from pathlib import Path

import httpx
from pydantic import BaseModel
from support_e2e import Home, read_rest, read_some, wait_for

COUNT = ("-o", "max_tokens", "60", "-o", "ignore_eos", "true")


def test_eight_asks_at_once_share_one_server_and_stream_together(home: Home) -> None:
    asking = [home.start("ask", *COUNT, f"Tell me about the number {n}.") for n in range(8)]
    first = [read_some(process, 1) for process in asking]
    together = home.status()["sequences"]["running"]
    done = [read_rest(process) for process in asking]
    assert [process.returncode for process in asking] == [0] * 8, [e.decode() for _, e in done]
    assert together > 1
    shown = {
        (start + rest).decode().removesuffix("\n")
        for start, (rest, _) in zip(first, done, strict=True)
    }
    stored = home.stored_replies()
    assert len(stored) == 8
    # a reply that ends its last line itself is printed as it is
    assert {reply["text"].removesuffix("\n") for reply in stored} == shown
    servers = {home.status()["server"]["pid"]}
    assert len(servers) == 1


def test_the_official_openai_client_streams_to_the_end(running: Home) -> None:
    import openai

    host, port = running.address()
    client = openai.OpenAI(base_url=f"http://{host}:{port}/v1", api_key=running.key())
    model = client.models.list().data[0].id
    question = [{"role": "user", "content": "Say hello."}]
    options = {"model": model, "messages": question, "max_tokens": 24, "temperature": 0, "seed": 1}
    whole = client.chat.completions.create(**options)  # type: ignore[call-overload]
    chunks = list(client.chat.completions.create(stream=True, **options))  # type: ignore[call-overload]
    streamed = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert streamed == whole.choices[0].message.content != ""
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason


class Place(BaseModel):
    name: str
    inhabitants: int
    rivers: list[str]


def test_the_official_openai_client_parses_a_reply_that_is_held_to_a_schema(running: Home) -> None:
    import openai

    host, port = running.address()
    client = openai.OpenAI(base_url=f"http://{host}:{port}/v1", api_key=running.key())
    for seed in range(5):
        try:
            answer = client.chat.completions.parse(
                model="default",
                messages=[{"role": "user", "content": "Describe Paris as JSON, with two rivers."}],
                response_format=Place,
                max_tokens=300,
                temperature=1.0,
                seed=seed,
            )
        except openai.LengthFinishReasonError:  # so small a model may find no end of a list
            continue
        choice = answer.choices[0]
        assert choice.finish_reason == "stop"
        assert isinstance(choice.message.parsed, Place)
        return
    raise AssertionError("no reply came to its end")


def test_the_idle_server_is_small(home: Home) -> None:
    home.run("ask", "-o", "max_tokens", "1", "hi")
    wait_for(lambda: home.status()["sequences"]["running"] == 0)
    pid = home.status()["server"]["pid"]
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    rollup = dict(line.split(":", 1) for line in lines)
    assert int(rollup["Pss"].split()[0]) < 120 * 1024


def test_after_a_warm_up_the_next_message_is_read_alone(home: Home) -> None:
    home.run("ask", "-o", "max_tokens", "20", "-o", "ignore_eos", "true", "Tell me a story.")
    home.stop()
    home.run("ask", "-o", "max_tokens", "1", "Something else.")
    id = home.conversations()[1]
    host, port = home.address()
    api = f"http://{host}:{port}/hobnob/v1"
    headers = {"x-api-key": home.key()}

    def asked() -> int:
        found = httpx.get(f"{api}/steps", headers=headers).json()["steps"]
        return len(found)

    before = asked()
    answer = httpx.post(f"{api}/conversations/{id}/warm", headers=headers)
    assert answer.json() == {"warming": True}
    wait_for(lambda: asked() > before)
    first = home.reply_of(id)["usage"]
    home.run("ask", "-o", "max_tokens", "1", "--conversation", id, "And then?")
    usage = home.reply_of(id)["usage"]
    assert usage["cached_tokens"] >= first["prompt_tokens"] + first["completion_tokens"]
