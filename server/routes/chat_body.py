"""The request body of /v1/chat/completions, and what becomes of it.

Fields that we do not know are ignored, as that API's clients expect. Known ones that would
change the answer and are not supported are refused: nothing is ignored in silence.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from hobnob.server import response_format, sampling_options
from hobnob.server.engine.protocol import ChatMessage
from hobnob.server.routes.bodies import Body, wrong

MAX_MESSAGES = 4096
MAX_PARTS = 1024
MAX_TOKENS_CEILING = 2**31 - 1
"""More is taken as this; the context window ends the reply long before."""

ROLES = {
    "system": "system",
    "developer": "system",  # what newer clients call it
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
UNSUPPORTED_PARTS = {
    "image_url": "images",
    "input_audio": "audio",
    "file": "files",
    "refusal": "refusals",
}


def _content(value: Any) -> str:
    """A string, or text parts, which are joined with a line break."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong("must be a string or a list of parts")
    if len(value) > MAX_PARTS:
        raise wrong(f"at most {MAX_PARTS} parts are taken")
    return "\n".join(_part(part) for part in value)


def _part(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        text = part.get("text")
        if isinstance(text, str):
            return text
        raise wrong("a text part needs `text`, a string")
    if isinstance(kind, str) and kind in UNSUPPORTED_PARTS:
        raise wrong(f"this model reads text only, not {UNSUPPORTED_PARTS[kind]}")
    raise wrong("every part must be an object of type `text`")


class _Open(Body):
    model_config = ConfigDict(extra="ignore")


class ChatTurn(_Open):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str, BeforeValidator(_content)] = ""
    tool_calls: list[Any] | None = None
    function_call: Any = None

    @model_validator(mode="after")
    def _no_calls(self) -> ChatTurn:
        if self.tool_calls or self.function_call:
            raise wrong("tool calls are not supported")
        return self


class StreamOptions(_Open):
    include_usage: bool | None = None


MaxTokens = Annotated[
    int | None,
    Field(ge=1),
    AfterValidator(lambda value: None if value is None else min(value, MAX_TOKENS_CEILING)),
]


class ChatBody(_Open):
    """Sampling options stay among the extra fields: they are checked where they are resolved."""

    model_config = ConfigDict(extra="allow")

    model: str
    messages: list[ChatTurn] = Field(min_length=1, max_length=MAX_MESSAGES)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: MaxTokens = None
    max_completion_tokens: MaxTokens = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=sampling_options.MAX_LOGPROBS)
    response_format: Any = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    grammar: Any = None
    json_schema: Any = None
    modalities: Any = None
    prediction: Any = None

    @field_validator("n")
    @classmethod
    def _one_choice(cls, value: int | None) -> int | None:
        if value not in (None, 1):
            raise wrong("only 1 is supported: one choice per request")
        return value

    @field_validator("grammar")
    @classmethod
    def _no_grammar(cls, value: Any) -> Any:
        if value not in (None, ""):
            raise wrong("grammars are not supported; `response_format` takes a JSON schema")
        return value

    @field_validator("modalities")
    @classmethod
    def _text_alone(cls, value: Any) -> Any:
        if value not in (None, ["text"]):
            raise wrong('only ["text"] is supported')
        return value

    @field_validator("prediction")
    @classmethod
    def _no_prediction(cls, value: Any) -> Any:
        if value is not None:
            raise wrong("predicted replies are not supported")
        return value

    @field_validator("tools", "functions")
    @classmethod
    def _no_tools(cls, value: list[Any] | None) -> list[Any] | None:
        if value:
            raise wrong("tools are not supported")
        return value

    @field_validator("tool_choice")
    @classmethod
    def _no_tool_choice(cls, value: Any) -> Any:
        if value not in (None, "none", "auto"):
            raise wrong("tools are not supported")
        return value

    @model_validator(mode="after")
    def _fitting_together(self) -> ChatBody:
        if self.stream_options is not None and not self.stream:
            raise wrong("stream_options needs `stream`: true", param="stream_options")
        if self.top_logprobs is not None and not self.logprobs:
            raise wrong("top_logprobs needs `logprobs`: true", param="top_logprobs")
        if self.response_format is not None and self.json_schema is not None:
            raise wrong("not together with `response_format`", param="json_schema")
        return self

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


def messages_of(body: ChatBody) -> list[ChatMessage]:
    return [ChatMessage(ROLES[turn.role], turn.content) for turn in body.messages]


def chat_options(body: ChatBody) -> dict[str, Any]:
    """Sampling options by our names. Of two token limits the smaller one holds."""
    given = body.model_extra or {}
    options = {name: given[name] for name in sampling_options.NAMES if name in given}
    limits = [n for n in (body.max_tokens, body.max_completion_tokens) if n is not None]
    if limits:
        options["max_tokens"] = min(limits)
    if body.logprobs:
        options["logprobs"] = body.top_logprobs or 0
    if body.response_format is not None:
        options["response_format"] = body.response_format
    if body.json_schema is not None:  # llama-server's name
        options["response_format"] = response_format.of_schema(body.json_schema, "json_schema")
    return options
