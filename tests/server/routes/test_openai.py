"""/v1/chat/completions and /v1/models, asked by the official client and by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pytest
from fake_engine import READY, FakeEngine
from support_edge import KEY, MODEL, Edge, edge_at, sse

from hobnob.server.engine.protocol import ChatMessage, Finish, Logprob, Output

if TYPE_CHECKING:  # half a second, which not every worker has to spend
    import openai

CHAT = "/v1/chat/completions"
ENDLESS = ["word "] * 1_000_000


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    async with edge_at(tmp_path, sockets=False) as opened:
        yield opened


def official(edge: Edge, **fields: Any) -> openai.AsyncOpenAI:
    import openai

    http = openai.DefaultAsyncHttpxClient(trust_env=False)
    settings: dict[str, Any] = {"api_key": KEY, "max_retries": 0, **fields}
    return openai.AsyncOpenAI(base_url=f"{edge.url}/v1", http_client=http, **settings)


def chunks_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(e["data"]) for e in sse(text) if e["data"] != "[DONE]"]


# ---- the official client


async def test_the_official_client_gets_a_whole_reply(tmp_path: Path) -> None:
    async with edge_at(tmp_path) as edge, official(edge) as client:
        reply = await client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "hi"}]
        )
    assert reply.choices[0].message.content == "Hello, world!"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.model == MODEL.id
    assert reply.usage is not None and reply.usage.total_tokens == 3 + 4


async def test_the_official_client_streams_to_the_end(tmp_path: Path) -> None:
    async with edge_at(tmp_path) as edge, official(edge) as client:
        stream = await client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    pieces = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert "".join(pieces) == "Hello, world!"
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4


async def test_the_official_client_raises_its_own_errors(tmp_path: Path) -> None:
    import openai

    said: Any = [{"role": "user", "content": "hi"}]
    async with edge_at(tmp_path, max_running=1, max_waiting=0, playing=False) as edge:
        async with official(edge) as client:
            with pytest.raises(openai.NotFoundError):
                await client.chat.completions.create(model="gpt-4o", messages=said)
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(model="tiny", messages=said, n=2)
            assert caught.value.param == "n"
            await edge.send()
            with pytest.raises(openai.InternalServerError) as overload:
                await client.chat.completions.create(model="tiny", messages=said)
            assert overload.value.status_code == 503
        async with official(edge, api_key="wrong") as client:
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()


async def test_the_official_client_hears_of_a_failure_in_mid_stream(tmp_path: Path) -> None:
    import openai

    engine = FakeEngine(ENDLESS)
    async with edge_at(tmp_path, engine, playing=False) as edge, official(edge) as client:
        stream = await client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        engine.step()
        run = next(iter(engine.runs))
        failed = Finish("error", error_code="engine_failed", error="CUDA error")
        engine.report(Output(run, finish=failed))
        with pytest.raises(openai.APIError, match="CUDA error"):
            async for _ in stream:
                pass


# ---- the stream's shape


async def test_a_stream_has_one_id_a_role_first_a_reason_last_and_then_done(edge: Edge) -> None:
    answer = await edge.chat(stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")
    assert "\nid:" not in answer.text and "retry:" not in answer.text
    chunks = chunks_of(answer.text)
    assert len({(c["id"], c["created"], c["model"], c["system_fingerprint"]) for c in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[-1]["choices"][0]["delta"] == {}
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"other": 1}])
async def test_usage_is_streamed_only_when_asked_for(edge: Edge, options: Any) -> None:
    chunks = chunks_of((await edge.chat(stream=True, stream_options=options)).text)
    assert all(chunk["choices"] and "usage" not in chunk for chunk in chunks)


async def test_streamed_usage_and_text_equal_the_whole_reply(edge: Edge) -> None:
    whole = (await edge.chat(seed=1)).json()
    chunks = chunks_of(
        (await edge.chat(seed=1, stream=True, stream_options={"include_usage": True})).text
    )
    assert chunks[-1]["usage"] == whole["usage"]
    assert all(chunk["usage"] is None for chunk in chunks[:-1])  # there, as OpenAI has it
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])
    assert text == whole["choices"][0]["message"]["content"]
    assert whole["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


async def test_stream_options_without_a_stream_are_refused(edge: Edge) -> None:
    answer = await edge.chat(stream_options={"include_usage": True})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stream_options")


async def test_a_failed_stream_says_so_and_has_neither_reason_nor_done(tmp_path: Path) -> None:
    engine = FakeEngine(ENDLESS)
    async with edge_at(tmp_path, engine, playing=False) as edge:
        asking = asyncio.create_task(edge.chat(stream=True))
        await edge.until(lambda: engine.runs)
        engine.step()
        failed = Finish("error", error_code="engine_failed", error="CUDA error")
        engine.report(Output(next(iter(engine.runs)), finish=failed))
        answer = await asking
    assert answer.status_code == 200
    assert "[DONE]" not in answer.text
    *chunks, last = chunks_of(answer.text)
    assert last["error"]["code"] == "engine_failed" and last["error"]["message"] == "CUDA error"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)


async def test_a_failed_whole_reply_is_an_error_with_its_status(tmp_path: Path) -> None:
    engine = FakeEngine(ENDLESS)
    async with edge_at(tmp_path, engine, playing=False) as edge:
        asking = asyncio.create_task(edge.chat())
        await edge.until(lambda: engine.runs)
        failed = Finish("error", error_code="engine_failed", error="CUDA error")
        engine.report(Output(next(iter(engine.runs)), finish=failed))
        answer = await asking
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "engine_failed")


async def test_a_prompt_that_turns_out_too_long_once_the_model_has_loaded_is_a_400(
    tmp_path: Path,
) -> None:
    engine = FakeEngine(loading=True)
    async with edge_at(tmp_path, engine) as edge:
        asking = asyncio.create_task(edge.chat("x" * 100))
        await edge.until(lambda: edge.runs.live_count == 1)
        engine.get_ready(msgspec.structs.replace(READY, n_ctx=64))
        answer = await asking
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "101" in answer.json()["error"]["message"]


async def test_a_stopping_server_ends_streams_with_an_error(tmp_path: Path) -> None:
    engine = FakeEngine(ENDLESS)
    async with edge_at(tmp_path, engine) as edge:
        streaming = asyncio.create_task(edge.chat(stream=True))
        whole = asyncio.create_task(edge.chat())
        await edge.until(lambda: len(engine.runs) == 2)
        await edge.runs.stop()
        last = chunks_of((await streaming).text)[-1]
        assert last["error"]["code"] == "server_stopping"
        assert ((await whole).status_code, (await whole).json()["error"]["code"]) == (
            503,
            "server_stopping",
        )


# ---- a client that leaves


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("stage", ["queued", "prefill", "writing", "loading"])
async def test_a_client_that_leaves_ends_its_run(
    tmp_path: Path, streamed: bool, stage: str
) -> None:
    engine = FakeEngine(ENDLESS, loading=stage == "loading")
    async with edge_at(tmp_path, engine, playing=False) as edge:
        async with httpx.AsyncClient(base_url=edge.url, trust_env=False) as leaving:
            body = {"model": "default", "messages": [{"role": "user", "content": "hi"}]}
            headers = {"x-api-key": KEY}
            request = leaving.build_request(
                "POST", CHAT, json={**body, "stream": streamed}, headers=headers
            )
            asking = asyncio.create_task(leaving.send(request, stream=True))
            await edge.until(lambda: edge.runs.live_count == 1)
            run = next(iter(engine.runs), "")
            if stage == "queued":
                engine.queue(run, 3)
            elif stage == "prefill":
                engine.prefill(run, 1, 2)
            elif stage == "writing":
                engine.step()
            if streamed:
                await (await asking).aclose()
            else:
                asking.cancel()
                await asyncio.wait([asking])
        if stage == "loading":
            await edge.until(lambda: edge.runs.live_count == 0)
        else:
            await edge.until(lambda: engine.cancelled == [run])
            engine.step()
            await edge.until(lambda: edge.runs.live_count == 0)


async def test_what_the_client_asked_here_is_not_in_the_history(edge: Edge) -> None:
    await edge.chat("a private question")
    assert (await edge.call("GET", "/conversations")).json() == {"conversations": []}
    found = await edge.call("GET", "/search", params={"q": "private"})
    assert found.json() == {"hits": []}


# ---- messages and models


async def test_roles_and_parts_become_messages(edge: Edge) -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "one"}]},
        {"role": "assistant", "content": None},
        {"role": "tool", "tool_call_id": "t", "content": "42"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}],
        },
    ]
    await edge.chat(messages=messages)
    assert edge.engine.rendered[-1] == [
        ChatMessage("system", "Be brief."),
        ChatMessage("user", "one"),
        ChatMessage("assistant", ""),
        ChatMessage("tool", "42"),
        ChatMessage("user", "A\nB"),
    ]


async def test_one_part_makes_the_same_prompt_as_the_plain_string(edge: Edge) -> None:
    await edge.chat(messages=[{"role": "user", "content": "same"}])
    await edge.chat(messages=[{"role": "user", "content": [{"type": "text", "text": "same"}]}])
    first, second = edge.engine.submitted
    assert first.prompt == second.prompt


@pytest.mark.parametrize("name", ["tiny.gguf", "tiny", "default"])
async def test_the_model_answers_to_its_names_and_says_who_it_is(edge: Edge, name: str) -> None:
    assert (await edge.chat(model=name)).json()["model"] == "tiny.gguf"


NOT_MODELS = ["nope", "", "gpt-4o", "Tiny", "../../etc/passwd", "/models/tiny.gguf", "tiny\x00"]


@pytest.mark.parametrize("name", [*NOT_MODELS, "x" * 10_000, "a\x1b[2J"])
async def test_other_names_are_not_found_and_shown_cleaned(edge: Edge, name: str) -> None:
    answer = await edge.chat(model=name)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert error["message"].isprintable() and len(error["message"]) < 300
    assert MODEL.path not in error["message"] or name == MODEL.path


async def test_models_lists_the_one_that_answers(edge: Edge) -> None:
    listed = (await edge.client.get("/v1/models")).json()
    assert [model["id"] for model in listed["data"]] == ["tiny.gguf"]
    one = (await edge.client.get("/v1/models/tiny")).json()
    assert one == listed["data"][0]
    missing = await edge.client.get("/v1/models/nope/deep")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    assert MODEL.path not in json.dumps(listed)


# ---- options


async def test_options_reach_the_engine(edge: Edge) -> None:
    await edge.chat(
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        min_p=0.1,
        repeat_penalty=1.2,
        presence_penalty=0.1,
        frequency_penalty=-0.1,
        logit_bias={"15": -100},
        seed=9,
        stop="x",
        max_tokens=3,
        user="ignored",
    )
    sampling = edge.engine.submitted[-1].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 7)
    assert (sampling.min_p, sampling.repeat_penalty) == (0.1, 1.2)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.1, -0.1)
    assert (sampling.logit_bias, sampling.seed) == ({15: -100.0}, 9)
    assert (sampling.stop, sampling.max_tokens) == (["x"], 3)


async def test_samplers_by_llama_server_s_names_reach_the_engine(edge: Edge) -> None:
    options = {
        "typical_p": 0.9,
        "top_n_sigma": 1.5,
        "xtc_probability": 0.5,
        "xtc_threshold": 0.2,
        "dry_multiplier": 0.8,
        "dry_base": 2.0,
        "dry_allowed_length": 3,
        "dry_penalty_last_n": 500,
        "dry_sequence_breakers": ["\n", "---"],
        "mirostat": 2,
        "mirostat_tau": 4.0,
        "mirostat_eta": 0.2,
        "adaptive_target": 0.4,
        "adaptive_decay": 0.8,
    }
    await edge.chat(**options)
    sampling = edge.engine.submitted[-1].sampling
    assert {name: getattr(sampling, name) for name in options} == options


@pytest.mark.parametrize(
    ("given", "stop"),
    [("", []), ([""], []), (["", "x"], ["x"]), ([], []), (None, []), ("x", ["x"]), ([" "], [" "])],
)
async def test_empty_stop_strings_stop_nothing(edge: Edge, given: Any, stop: list[str]) -> None:
    answer = await edge.chat(stop=given)
    assert answer.json()["choices"][0]["message"]["content"] == "Hello, world!"
    assert edge.engine.submitted[-1].sampling.stop == stop


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"max_tokens": 1}, 1),
        ({"max_completion_tokens": 2}, 2),
        ({"max_tokens": 3, "max_completion_tokens": 2}, 2),
        ({"max_tokens": None}, 0),
        ({"max_tokens": 10**9}, 10**9),
        ({"max_tokens": 2**63}, 2**31 - 1),
    ],
)
async def test_the_smaller_token_limit_holds(
    edge: Edge, fields: dict[str, Any], limit: int
) -> None:
    answer = await edge.chat(**fields)
    assert edge.engine.submitted[-1].sampling.max_tokens == limit
    reason = answer.json()["choices"][0]["finish_reason"]
    assert reason == ("length" if 0 < limit <= 4 else "stop")


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": ["hi"]}, "messages.0"),
    ({"messages": [{"role": "user", "content": ""}]}, "messages"),
    ({"messages": [{"role": "user", "content": " "}]}, "messages"),
    ({"messages": [{"role": "user", "content": []}]}, "messages"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": ["hi"]}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages.0.content",
    ),
    ({"messages": [{"role": "function", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"content": "x"}]}, "messages.0.role"),
    ({"model": None}, "model"),
    ({"model": 5}, "model"),
    ({"n": 2}, "n"),
    ({"n": 0}, "n"),
    ({"stream": "yes"}, "stream"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": "10"}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"stop": [None]}, "stop"),
    ({"stop": [1]}, "stop"),
    ({"stop": [str(n) for n in range(1000)]}, "stop"),
    ({"stop": "x" * 100_000}, "stop"),
    ({"logit_bias": {"999999999": 5}}, "logit_bias"),
    ({"logit_bias": {"-1": 5}}, "logit_bias"),
    ({"logit_bias": {"abc": 1}}, "logit_bias"),
    ({"logit_bias": {"15": 1e9}}, "logit_bias"),
    ({"logit_bias": [[15, 5]]}, "logit_bias"),
    ({"logit_bias": {str(n): 1 for n in range(2000)}}, "logit_bias"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"response_format": "json"}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}}, "response_format"),
    ({"response_format": schema_format({"type": "nonsense"})}, "response_format"),
    ({"response_format": schema_format({"enum": ["x" * 70_000]})}, "response_format"),
    ({"grammar": "root ::= [0-9]+"}, "grammar"),
    ({"json_schema": 3}, "json_schema"),
    ({"json_schema": {}, "response_format": {"type": "json_object"}}, "json_schema"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"modalities": "audio"}, "modalities"),
    ({"prediction": {"type": "content", "content": "x"}}, "prediction"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
async def test_what_cannot_be_done_is_refused_by_name_and_never_ignored(
    edge: Edge, fields: dict[str, Any], param: str
) -> None:
    answer = await edge.chat(**fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (
        400,
        "invalid_request_error",
        param,
    )
    assert edge.engine.submitted == []


async def test_fields_that_ask_for_what_is_done_anyway_are_taken(edge: Edge) -> None:
    plain = {"grammar": "", "json_schema": None, "modalities": ["text"], "prediction": None}
    assert (await edge.chat(**plain, tools=[], response_format={"type": "text"})).is_success


@pytest.mark.parametrize(
    ("fields", "schema"),
    [
        ({"response_format": {"type": "json_object"}}, None),
        ({"response_format": {"type": "json_object", "schema": {"type": "object"}}}, "object"),
        ({"response_format": schema_format({"type": "array"})}, "array"),
        ({"json_schema": {"type": "integer"}}, "integer"),
    ],
)
async def test_the_form_of_a_reply_reaches_the_engine(
    edge: Edge, fields: dict[str, Any], schema: str | None
) -> None:
    assert (await edge.chat(**fields)).is_success
    taken = edge.engine.submitted[-1].sampling.response_format
    if schema is None:
        assert taken == {"type": "json_object"}
    else:
        assert taken == {"type": "json_schema", "json_schema": {"schema": {"type": schema}}}


async def test_minus_one_asks_for_a_random_seed_as_llama_server_has_it(edge: Edge) -> None:
    for _ in range(2):
        assert (await edge.chat(seed=-1)).is_success
    first, second = [submit.sampling.seed for submit in edge.engine.submitted]
    assert first != second and min(first, second) >= 0


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1,2]", b'"x"', b"null", b"\xff\xfe\x00", b"[" * 100_000, b"{}", b'{"a":NaN}'],
)
async def test_a_body_that_is_no_request_is_refused_in_the_right_envelope(
    edge: Edge, body: bytes
) -> None:
    answer = await edge.raw(CHAT, body)
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "NaN"),
        ("top_p", "Infinity"),
        ("presence_penalty", "-Infinity"),
        ("temperature", "1e999"),
        ("seed", "1e30"),
        ("seed", "-2"),
        ("top_k", "99999999999999999999"),
        ("max_tokens", "NaN"),
    ],
)
async def test_edge_values_of_numbers_are_refused_by_name(
    edge: Edge, name: str, value: str
) -> None:
    body = '{"model": "default", "messages": [{"role": "user", "content": "hi"}], '
    answer = await edge.raw(CHAT, f'{body}"{name}": {value}}}'.encode())
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)
    assert (await edge.chat()).status_code == 200


async def test_lone_surrogates_are_replaced_wherever_they_are(edge: Edge) -> None:
    body = rb'{"model": "default", "messages": [{"role": "user", "content": "a \ud83d"}],'
    answer = await edge.raw(CHAT, body + rb' "stop": ["\udc00"], "metadata": {"\ud800": "\ud800"}}')
    assert answer.status_code == 200
    assert edge.engine.rendered[-1][0].text == "a \ufffd"
    assert edge.engine.submitted[-1].sampling.stop == ["\ufffd"]
    answer = await edge.raw(CHAT, body.replace(b"default", rb"\ud83d") + b' "n": 1}')
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_prompt_over_the_window_is_told_both_numbers(tmp_path: Path) -> None:
    async with edge_at(tmp_path, FakeEngine(n_ctx=64), sockets=False) as edge:
        error = (await edge.chat("x" * 100)).json()["error"]
        assert error["code"] == "context_length_exceeded"
        assert (error["n_prompt_tokens"], error["n_ctx"]) == (101, 64)


async def test_what_the_template_refuses_is_told(edge: Edge) -> None:
    edge.engine.template_error = "Roles must alternate."
    answer = await edge.chat()
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "Roles must alternate.")


# ---- logprobs


async def _with_logprobs(tmp_path: Path, **fields: Any) -> httpx.Response:
    """A reply of two tokens that are halves of one character, then an end."""
    engine = FakeEngine()
    first, second = "é".encode()[:1], "é".encode()[1:]
    async with edge_at(tmp_path, engine, playing=False) as edge:
        asking = asyncio.create_task(edge.chat(logprobs=True, **fields))
        await edge.until(lambda: engine.runs)
        run = next(iter(engine.runs))
        halves = [
            Logprob(7, first, -0.5, [(7, first, -0.5), (8, b"x", float("-inf"))]),
            Logprob(9, second, float("-inf"), []),
        ]
        engine.report(Output(run, [7], logprobs=halves[:1]))
        engine.report(Output(run, [9], "é", logprobs=halves[1:]))
        engine.report(Output(run, finish=Finish("end_turn", completion_tokens=2)))
        return await asking


async def test_logprobs_have_one_entry_per_token_and_exact_bytes(tmp_path: Path) -> None:
    answer = await _with_logprobs(tmp_path, top_logprobs=2)
    content = answer.json()["choices"][0]["logprobs"]["content"]
    assert bytes(byte for token in content for byte in token["bytes"]).decode() == "é"
    assert [token["logprob"] for token in content] == [-0.5, -9999.0]
    assert [len(token["top_logprobs"]) for token in content] == [2, 0]
    assert "Infinity" not in answer.text


async def test_streamed_logprobs_are_the_same(tmp_path: Path) -> None:
    whole = await _with_logprobs(tmp_path / "a", top_logprobs=2)
    chunks = chunks_of((await _with_logprobs(tmp_path / "b", top_logprobs=2, stream=True)).text)
    streamed = [
        token
        for chunk in chunks
        if (logprobs := chunk["choices"][0]["logprobs"]) is not None
        for token in logprobs["content"]
    ]
    assert streamed == whole.json()["choices"][0]["logprobs"]["content"]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, -1),
        ({"logprobs": False}, -1),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 0}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
    ],
)
async def test_logprobs_are_asked_of_the_engine_only_when_wanted(
    edge: Edge, fields: dict[str, Any], wanted: int
) -> None:
    answer = await edge.chat(**fields)
    assert edge.engine.submitted[-1].sampling.logprobs == wanted
    assert (answer.json()["choices"][0]["logprobs"] is None) == (wanted < 0)


# ---- the fingerprint


async def test_the_fingerprint_changes_with_what_answers(edge: Edge) -> None:
    first = (await edge.chat()).json()["system_fingerprint"]
    assert (await edge.chat()).json()["system_fingerprint"] == first
    ready = edge.engine.status.ready
    assert ready is not None
    edge.engine.get_ready(msgspec.structs.replace(ready, device="NVIDIA"))
    assert (await edge.chat()).json()["system_fingerprint"] != first
