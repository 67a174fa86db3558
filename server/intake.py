"""From a request to a planned prompt: options resolved, history built, tokens counted.

Everything that can be refused for what it asks is refused here, before anything is stored.
Reads the store and asks the engine's text thread; changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from hobnob.server import continuing, history, response_format, sampling_options
from hobnob.server.context import MIN_REPLY_TOKENS, Item, Plan, plan
from hobnob.server.continuing import Kept
from hobnob.server.engine.protocol import ChatMessage, Submit, TextReady
from hobnob.server.engine.state import EnginePort, EngineState, EngineStatus
from hobnob.server.errors import (
    Busy,
    Conflict,
    EmptyPrompt,
    EngineFailed,
    InvalidRequest,
    ModelLoading,
    ModelUnavailable,
    PromptTooLong,
    TextTooLong,
)
from hobnob.server.requests import (
    ROOT,
    CompletionRequest,
    ContinueRequest,
    QuestionRequest,
    ReplyRequest,
    RunSettings,
    TurnRequest,
)
from hobnob.server.sampling_options import Options
from hobnob.store.store import Store
from hobnob.store.values import Message, Said

LOADING_RETRY_SECONDS = 5

WARM_PREFIX = "warm_"
"""Of the id that the engine knows a warm-up by; with the same last message it is the same one."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that is known of a run before it is accepted."""

    plan: Plan
    options: Options
    text: TextReady
    model: str
    planned_s: float
    exact: bool | None  # whether it is reproducible bit for bit; None: not known yet
    parent: str | None = None  # id of the message that the new one follows
    conversation: str | None = None  # its whole id, where there is one already
    kept: Kept | None = None  # what the reply begins with

    @property
    def prompt(self) -> list[int]:
        return self.plan.prompt


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a message would bring about if it were sent now."""

    plan: Plan
    text_tokens: int  # of the message alone
    cached_tokens: int | None  # of the prompt, not to be computed again; None: not known now


class Intake:
    def __init__(
        self,
        store: Store,
        engine: EnginePort,
        settings: RunSettings,
        choose_seed: Callable[[], int],
    ):
        self._store = store
        self._engine = engine
        self._settings = settings
        self._choose_seed = choose_seed

    def check_model(self) -> None:
        """Raises ModelUnavailable or ModelLoading where no run may enter now."""
        status = self._engine.status
        if status.state is EngineState.FAILED:
            why = status.failure.message if status.failure else "The model cannot be loaded."
            raise ModelUnavailable(why)
        if status.state is EngineState.LOADING and not self._settings.wait_for_model:
            raise ModelLoading(
                f"The model is loading ({status.load_done:.0%}).",
                retry_after_s=LOADING_RETRY_SECONDS,
            )

    def check_text(self, text: str) -> None:
        """Raises before anything is tokenised: some texts are slow to read (C20)."""
        if not text.strip():
            raise EmptyPrompt("The message is empty.", param="text")
        self._check_size(len(text.encode("utf-8", "replace")), "text")

    def check_system(self, text: str | None) -> None:
        """Raises for a system prompt that no message of its conversation could be sent with."""
        self._check_size(len((text or "").encode("utf-8", "replace")), "system")

    def check_messages(self, messages: list[ChatMessage]) -> None:
        """As `check_text`, for all messages of a completion together."""
        if not messages:
            raise EmptyPrompt("There are no messages.", param="messages")
        sizes = (len(message.text.encode("utf-8", "replace")) for message in messages)
        self._check_size(sum(sizes), "messages")

    def _check_instructions(self, request: TurnRequest | ReplyRequest) -> None:
        text = request.instructions or ""
        self._check_size(len(text.encode("utf-8", "replace")), "instructions")

    def _check_history(self, history: Sequence[Said]) -> None:
        """Together they have the bound of one message, as those of a completion."""
        if history and (history[-1].role != "assistant" or not _takes_turns(history)):
            raise InvalidRequest(
                "history: the user's messages and the replies in turn, from one of the user to a "
                "reply.",
                param="history",
            )
        if not all(one.text.strip() for one in history):
            raise EmptyPrompt("A message of the history is empty.", param="history")
        sizes = (len(one.text.encode("utf-8", "replace")) for one in history)
        self._check_size(sum(sizes), "history")

    def _check_size(self, size: int, param: str) -> None:
        limit = self._settings.max_text_bytes
        if size > limit:
            raise TextTooLong(f"The text has {size} bytes; at most {limit} are taken.", param=param)

    async def turn(self, request: TurnRequest) -> Prepared:
        self._check_instructions(request)
        if request.conversation is None:
            if request.parent not in (None, ROOT):
                raise InvalidRequest("A new conversation has no message to answer.", param="parent")
            if request.about is not None:
                raise InvalidRequest("A new conversation has nothing to sum up.", param="about")
            self.check_system(request.system)
            self._check_history(request.history)
            sampling_options.check(request.settings)
            system = _system(request, request.system)
            layers = [request.settings, request.options]
            return await self._prepare(system, request.history, request.text, layers, None)
        conversation = await self._store.conversation(request.owner, request.conversation)
        leaf = conversation.head if request.parent is None else request.parent
        branch: list[Message] = []
        if leaf is not None and leaf != ROOT:
            branch = await self._store.branch(request.owner, conversation.id, leaf)
        parent = branch[-1].id if branch else None
        if request.about is not None:
            branch = await self._summed_up(request, conversation.id, request.about)
        system = _system(request, conversation.system)
        layers = [conversation.settings, request.options]
        prepared = await self._prepare(system, branch, request.text, layers, parent)
        return replace(prepared, conversation=conversation.id)

    async def forecast(self, request: TurnRequest) -> Forecast:
        """Raises as `turn`; waits for no step that is under way for longer than a moment."""
        prepared = await self.turn(request)
        text_tokens = len(await self._engine.tokenize(request.text))
        exact = bool(self._engine.status.exact(prepared.options.exact))
        cached = await self._engine.resident(prepared.prompt, owner=request.owner, exact=exact)
        return Forecast(prepared.plan, text_tokens, cached)

    async def warm(self, owner: str, id: str) -> Submit | None:
        """What makes the conversation's history resident, so that its next message is read
        alone; None where there is none, it is being written, or not all of it will be sent."""
        conversation = await self._store.conversation(owner, id)
        if conversation.head is None or self._engine.status.state is not EngineState.READY:
            return None
        branch = await self._store.branch(owner, conversation.id, conversation.head)
        text = await self._engine.text()
        options = self._resolve([conversation.settings], text)
        try:
            items = history.items(conversation.system, branch, text.vocab_hash)
            messages = [item.message for item in items]
            prompt = await self._engine.render(messages, add_generation_prompt=False)
        except (Conflict, InvalidRequest, EngineFailed, Busy):
            return None  # only a hint: whoever sends the message is told what is wrong
        n_ctx = expected_n_ctx(self._engine.status, text)
        if not prompt or len(prompt) > n_ctx - self._reserve(options, n_ctx):
            return None
        return Submit(
            run=f"{WARM_PREFIX}{conversation.head}",
            prompt=prompt,
            sampling=options.sampling,
            owner=owner,
            interactive=False,
            exact=bool(self._engine.status.exact(options.exact)),
            warm=True,
            group=conversation.id,
        )

    async def reply(self, request: ReplyRequest) -> Prepared:
        self._check_instructions(request)
        conversation = await self._store.conversation(request.owner, request.conversation)
        branch = await self._store.branch(request.owner, conversation.id, request.parent)
        if not branch or branch[-1].role != "user":
            raise InvalidRequest("Only a user's message can be replied to.", param="parent")
        branch = await self._told(request.owner, conversation.id, branch)
        layers = [conversation.settings, request.options]
        system = _system(request, conversation.system)
        prepared = await self._prepare(system, branch, None, layers, branch[-1].id)
        return replace(prepared, conversation=conversation.id)

    async def continued(self, request: ContinueRequest) -> Prepared:
        """The prompt of the reply that was cut, as far as the window has room beside its text."""
        started = _now()
        conversation = await self._store.conversation(request.owner, request.conversation)
        *before, reply = await self._store.branch(request.owner, conversation.id, request.message)
        before = await self._told(request.owner, conversation.id, before)
        run = None if reply.run is None else await self._store.run(request.owner, reply.run)
        text = await self._engine.text()
        kept = continuing.kept_of(reply, run, text.vocab_hash)
        if kept.text and not kept.tokens:
            kept = replace(kept, tokens=await self._engine.tokenize(kept.text, inside=True))
        layers = [conversation.settings, kept.options, request.options]
        options = await self._checked(layers, text)
        if any(stop in kept.text for stop in options.sampling.stop):
            raise InvalidRequest("The reply has one of the stop strings already.", param="stop")
        system = conversation.system if kept.instructions is None else kept.instructions
        items = history.items(system, before, text.vocab_hash)
        n_ctx = expected_n_ctx(self._engine.status, text)
        reserve = len(kept.tokens) + self._reserve(options, n_ctx)
        planned = await plan(items, self._engine.render, n_ctx=n_ctx, reserve=reserve)
        known = len(planned.prompt) + len(kept.tokens)
        if known + MIN_REPLY_TOKENS > n_ctx:
            raise PromptTooLong(known, n_ctx)
        grown = continuing.grown(options, kept)
        prepared = self._prepared(planned, grown, text, started, before[-1].id)
        return replace(prepared, conversation=conversation.id, kept=kept, exact=False)

    async def _summed_up(self, request: TurnRequest, place: str, about: str) -> list[Message]:
        """The branch that a request for a summary is asked at the end of."""
        if request.parent != ROOT:
            raise InvalidRequest("about: of a first message (parent root) only.", param="about")
        branch = await self._store.branch(request.owner, place, about)
        if not branch or branch[-1].role != "assistant":
            raise InvalidRequest("about: the id of a reply.", param="about")
        return branch

    async def _told(self, owner: str, place: str, branch: list[Message]) -> list[Message]:
        """What was said when the last message of the branch was: before a request for a summary,
        what it is about. Raises NotFound when nobody has that any more."""
        about = history.about(branch[0]) if len(branch) == 1 else None
        if about is None:
            return branch
        return [*await self._store.branch(owner, place, about), *branch]

    async def completion(self, request: CompletionRequest) -> Prepared:
        """Given messages are taken as they are: what does not fit is refused, not trimmed."""
        started = _now()
        text = await self._engine.text()
        options = await self._checked([request.options], text)
        prompt = await self._engine.render(request.messages)
        n_ctx = expected_n_ctx(self._engine.status, text)
        if len(prompt) + 1 > n_ctx:
            raise PromptTooLong(len(prompt), n_ctx)
        planned = Plan(request.messages, prompt, len(request.messages), n_ctx)
        return self._prepared(planned, options, text, started, None)

    async def question(self, request: QuestionRequest) -> Prepared:
        """The prompt begins as that of the conversation's next message, so most of it is there."""
        conversation = await self._store.conversation(request.owner, request.conversation)
        if conversation.head is None:
            raise Conflict("Nothing was said in this conversation yet.")
        branch = await self._store.branch(request.owner, conversation.id, conversation.head)
        layers = [request.options]
        prepared = await self._prepare(conversation.system, branch, request.text, layers, None)
        return replace(prepared, conversation=conversation.id)

    async def _prepare(
        self,
        system: str | None,
        branch: Sequence[Message | Said],
        new_text: str | None,
        layers: list[Mapping[str, Any]],
        parent: str | None,
    ) -> Prepared:
        started = _now()
        text = await self._engine.text()
        options = await self._checked(layers, text)
        items = history.items(system, branch, text.vocab_hash)
        if new_text is not None:
            items.append(Item(ChatMessage("user", new_text)))
        n_ctx = expected_n_ctx(self._engine.status, text)
        reserve = self._reserve(options, n_ctx)
        planned = await plan(items, self._engine.render, n_ctx=n_ctx, reserve=reserve)
        return self._prepared(planned, options, text, started, parent)

    def _prepared(
        self, planned: Plan, options: Options, text: TextReady, started: float, parent: str | None
    ) -> Prepared:
        return Prepared(
            plan=planned,
            options=options,
            text=text,
            model=self._settings.model or text.name,
            planned_s=_now() - started,
            exact=options.sampling.reproducible and self._engine.status.exact(options.exact),
            parent=parent,
        )

    async def _checked(self, layers: list[Mapping[str, Any]], text: TextReady) -> Options:
        """As `_resolve`; raises InvalidRequest too for a form that cannot be held to."""
        options = self._resolve(layers, text)
        if options.sampling.response_format:
            await asyncio.to_thread(response_format.check, options.sampling.response_format)
        return options

    def _resolve(self, layers: list[Mapping[str, Any]], text: TextReady) -> Options:
        return sampling_options.resolve(
            [self._settings.sampling, *layers],
            n_vocab=text.n_vocab,
            choose_seed=self._choose_seed,
        )

    def _reserve(self, options: Options, n_ctx: int) -> int:
        """Never more than a quarter of the window: history is worth more than a long reply."""
        wanted = options.sampling.max_tokens or self._settings.reply_tokens
        return max(min(wanted, n_ctx // 4), 1)


def _takes_turns(history: Sequence[Said]) -> bool:
    roles = cycle(("user", "assistant"))
    return all(one.role == role for one, role in zip(history, roles, strict=False))


def _system(request: TurnRequest | ReplyRequest, usual: str | None) -> str | None:
    return usual if request.instructions is None else request.instructions


def expected_n_ctx(status: EngineStatus, text: TextReady) -> int:
    """The window of one sequence. Before the weights are loaded, what was configured and trained:
    the engine takes less only where memory is short, and then the run is told."""
    if status.ready is not None:
        return status.ready.n_ctx
    return min(status.n_ctx_limit or text.n_ctx_train, text.n_ctx_train)


def _now() -> float:
    return asyncio.get_running_loop().time()
