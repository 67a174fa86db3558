"""What the server process and the engine process say to each other over their socketpair.

Each frame is a 4-byte big-endian length and one msgpack array (msgspec, tagged by its first item).
The server sends commands, the engine reports; one `Stepped` frame a step carries the news of
all runs. Values only: neither side's state is in here.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

MAX_FRAME_BYTES = 64 * 1024 * 1024
LENGTH = struct.Struct(">I")


class Message(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Base of everything that travels; the class name is the tag."""


class Measured(msgspec.Struct, array_like=True, frozen=True):
    """What an engine found out at its load, so that its successor need not."""

    of: bytes  # the fingerprint of what it holds for
    exact_rows: int
    rows: int  # of the largest step that was tried
    seconds: float  # and what that took
    stretch_s: float = 0.0  # to put saved cells back, however few
    token_s: float = 0.0  # and for each of them beside


# ---- server to engine -------------------------------------------------------------------------


class Configure(Message, frozen=True, tag=True, array_like=True):
    """The first frame. Zero means: choose."""

    model: str  # path of the GGUF file
    n_ctx: int = 0  # window of one sequence, tokens; 0: min(trained length, what the cells allow)
    n_cells: int = 0  # KV cells over all sequences
    n_seq_max: int = 8
    n_ubatch: int = 512
    n_threads: int = 0
    n_gpu_layers: int = -1  # -1: all that fit where the build can offload, else none
    kv_type: str = "auto"  # auto | f16 | f16-bf16 | q8_0
    flash_attn: str = "auto"  # auto | on | off
    target_gap_ms: float = 0.0  # inter-token target that sizes prefill chunks; 0: choose
    speculation: str = "off"  # auto | off
    snapshot_folder: str = ""  # of its own: strange files in it are removed; "": none
    snapshot_disk_bytes: int = 0  # 0 means 0 here
    snapshot_ram_bytes: int = -1  # with states of runs that are put aside; -1: choose
    draft_model: str = ""  # path of a small GGUF file of the same vocabulary; "": none
    measured: Measured | None = None  # by an engine before


class Sampling(msgspec.Struct, array_like=True, frozen=True):
    """How the next token is drawn. Resolved and range-checked by the server."""

    seed: int  # 0 .. 2**64-1
    temperature: float = 0.8  # 0: the most likely token
    top_k: int = 40  # 0: off
    top_p: float = 0.95  # 1: off
    min_p: float = 0.05  # 0: off
    repeat_penalty: float = 1.0  # 1: off; over the last repeat_last_n tokens, prompt included
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    stop: list[str] = []
    max_tokens: int = 0  # 0: up to the window
    ignore_eos: bool = False
    logprobs: int = -1  # -1: none; n: the drawn token's and the n most likely ones'
    typical_p: float = 1.0  # 1: off
    top_n_sigma: float = -1.0  # 0 and less: off
    xtc_probability: float = 0.0  # 0: off
    xtc_threshold: float = 0.1  # over 0.5: off
    dry_multiplier: float = 0.0  # 0: off
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64  # tokens looked back, prompt included; 0: off
    dry_sequence_breakers: list[str] = msgspec.field(default_factory=lambda: ["\n", ":", '"', "*"])
    mirostat: int = 0  # 0: off; 1 and 2: the versions
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0  # negative: off
    adaptive_decay: float = 0.9
    response_format: dict[str, Any] = {}  # as server/response_format.py makes it; {}: any text

    @property
    def reproducible(self) -> bool:
        """Whether the draw depends on nothing but logits, seed, place and the tokens before."""
        return self.mirostat == 0 and self.adaptive_target < 0.0


class Submit(Message, frozen=True, tag=True, array_like=True):
    """A run to generate. `emitted` are the ids already logged (a run that goes on)."""

    run: str
    prompt: list[int]
    sampling: Sampling
    emitted: list[int] = []
    owner: str = "local"
    interactive: bool = True  # False: batch class
    exact: bool = False
    warm: bool = False  # only makes the prompt resident, while there is nothing else to do
    group: str = ""  # the conversation; what has none is never written to disk


class Cancel(Message, frozen=True, tag=True, array_like=True):
    """Acts within a step. Answered by an Output with finish.reason "cancelled", unless over."""

    run: str


class ChatMessage(msgspec.Struct, array_like=True, frozen=True):
    role: str
    text: str
    tokens: list[int] | None = None
    """Ids of `text` as generated, used instead of tokenising it again."""


class Render(Message, frozen=True, tag=True, array_like=True):
    """Messages to prompt tokens through the model's chat template. Answered by Rendered."""

    id: int
    messages: list[ChatMessage]
    add_generation_prompt: bool = True


class Tokenize(Message, frozen=True, tag=True, array_like=True):
    """Plain text to tokens, special tokens as text. Answered by Rendered."""

    id: int
    text: str
    inside: bool = False  # it goes on from other text, so no space belongs before it


class Forget(Message, frozen=True, tag=True, array_like=True):
    """The conversation was deleted: drop all that was kept of its runs. Not answered."""

    group: str


class Lookup(Message, frozen=True, tag=True, array_like=True):
    """How much of a prompt a run would not have to compute. Answered by Found, between steps."""

    id: int
    owner: str
    prompt: list[int]
    exact: bool = False


class Shutdown(Message, frozen=True, tag=True, array_like=True):
    """Stop at the next step boundary and exit."""


Command = Configure | Submit | Cancel | Render | Tokenize | Forget | Lookup | Shutdown


# ---- engine to server -------------------------------------------------------------------------


class TextReady(Message, frozen=True, tag=True, array_like=True):
    """The vocabulary is loaded: Render and Tokenize are answered from now on."""

    name: str  # general.name of the file, or its stem
    vocab_hash: str
    template_hash: str
    has_template: bool
    n_vocab: int
    n_ctx_train: int


class LoadProgress(Message, frozen=True, tag=True, array_like=True):
    done: float  # 0..1


class Ready(Message, frozen=True, tag=True, array_like=True):
    """The weights are loaded: runs go on."""

    n_ctx: int  # window of one sequence, tokens
    n_cells: int
    n_seq_max: int
    n_ubatch: int
    n_threads: int
    gpu_layers: int
    device: str  # "cpu" or the device's name
    exact_rows: int  # steps of at most this many rows are bit-equal; 0: none are
    explain: list[str] = []  # one line per choice made for the user
    measured: Measured | None = None  # for the next engine's Configure


class LoadFailed(Message, frozen=True, tag=True, array_like=True):
    """The model cannot be loaded: nothing will be computed. The process waits to be told to end."""

    code: str  # an errors.py code
    message: str


class Rendered(Message, frozen=True, tag=True, array_like=True):
    id: int
    tokens: list[int] = []
    error: str | None = None  # one sentence: what the template or tokenizer said
    too_long: bool = False  # the error: it cannot fit the window, whatever its tokens


class Found(Message, frozen=True, tag=True, array_like=True):
    id: int
    resident: int  # leading tokens of the prompt that are in the cells, or kept of earlier runs


class Logprob(msgspec.Struct, array_like=True, frozen=True):
    token: int
    piece: bytes
    logprob: float
    top: list[tuple[int, bytes, float]] = []


WARMED = "warmed"
"""Finish.reason of a warm-up, whether it got to its end or was dropped."""


class Finish(msgspec.Struct, array_like=True, frozen=True):
    """The run is over and its cells are free."""

    reason: str  # a wire.StopReason, or WARMED
    stop_string: str | None = None
    error_code: str | None = None
    error: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0  # emitted ones of earlier lives included
    queued_s: float = 0.0
    prefill_s: float = 0.0
    first_decode_s: float = 0.0
    decode_s: float = 0.0
    token_p50_s: float = 0.0
    token_p99_s: float = 0.0
    token_max_s: float = 0.0
    drafted: int = 0  # tokens that were guessed and computed; in this life, like the times
    accepted: int = 0  # of these, the ones that were drawn
    decoded: int = 0  # of completion_tokens, the ones of this life


class Output(msgspec.Struct, array_like=True, frozen=True):
    """News of one run from one step.

    `tokens` are the ids drawn since the last Output of this run; `text` is what they made
    showable (it lags behind where a character or a stop string may still be incomplete).
    Joined texts are the reply. `replayed` is given once, in the first Output of a run that was
    submitted with emitted ids: the text that those ids alone make showable.
    """

    run: str
    tokens: list[int] = []
    text: str = ""
    replayed: str | None = None
    logprobs: list[Logprob] = []
    finish: Finish | None = None


class PrefillProgress(msgspec.Struct, array_like=True, frozen=True):
    run: str
    done: int
    total: int
    cached: int


class Place(msgspec.Struct, array_like=True, frozen=True):
    """Where a waiting run stands; 1 is next."""

    run: str
    position: int
    eta_s: float | None = None


class Stats(msgspec.Struct, array_like=True, frozen=True):
    """The engine at the end of a step; rates are moving averages, tokens per second."""

    running: int = 0
    waiting: int = 0
    cells_used: int = 0
    cells_cached: int = 0
    cells_total: int = 0
    prefill_tps: float = 0.0
    decode_tps: float = 0.0
    steps: int = 0
    decode_s: float = 0.0  # of the last step, inside llama_decode
    overhead_s: float = 0.0  # of the last step, everything else until the next one began
    threads: int = 0
    evicted_cells: int = 0  # of cached prefixes, since the start; so are the next three
    saved: int = 0  # stretches of put-aside runs' cells, to RAM
    restored: int = 0
    moved_cells: int = 0  # to win back gaps between sequences
    saved_bytes: int = 0  # now
    drafted: int = 0  # tokens, since the start
    accepted: int = 0  # of these, the ones that were drawn
    snapshot_ram_bytes: int = 0  # now
    snapshot_disk_bytes: int = 0  # now
    snapshot_written_bytes: int = 0  # since the start
    restored_tokens: int = 0  # from snapshots, since the start
    snapshot_ram_max: int = 0
    snapshot_disk_max: int = 0
    video_free: int = 0  # bytes, of all GPUs in use; a second old at the most while there is work
    video_total: int = 0  # 0: no GPU in use


class Record(msgspec.Struct, array_like=True, frozen=True):
    """What one step did and cost."""

    at: float  # the engine's clock
    decodes: int
    prefill_rows: int
    running: int
    waiting: int
    cells_used: int
    cells_cached: int
    threads: int
    decode_s: float
    overhead_s: float
    evicted: int  # cells so far
    saved: int  # stretches so far
    restored: int
    drafted: int = 0
    accepted: int = 0


class Stepped(Message, frozen=True, tag=True, array_like=True):
    """The one frame of a step (also sent when only a place or the stats changed).

    `records` are sent now and then, each once: those of the steps since the last time.
    """

    outputs: list[Output] = []
    prefills: list[PrefillProgress] = []
    places: list[Place] = []
    stats: Stats = Stats()
    records: list[Record] = []


Report = TextReady | LoadProgress | Ready | LoadFailed | Rendered | Found | Stepped

_encoder = msgspec.msgpack.Encoder()
_commands: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_reports: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


def frame(message: Command | Report) -> bytes:
    """The message with its length in front."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {len(body)} bytes is over the limit of {MAX_FRAME_BYTES}")
    return LENGTH.pack(len(body)) + body


def command(body: bytes) -> Command:
    """Raises msgspec.DecodeError on anything else."""
    return _commands.decode(body)


def report(body: bytes) -> Report:
    """Raises msgspec.DecodeError on anything else."""
    return _reports.decode(body)
