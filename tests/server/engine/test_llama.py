"""The gate to llama.cpp, on the real library: the starter model's vocabulary, and a tiny model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support_model import starter

from hobnob.server.engine import exactness
from hobnob.server.engine.llama import (
    PAD_CELLS,
    LlamaError,
    LoadError,
    Model,
    Shape,
    Vocab,
    Weights,
)
from hobnob.server.engine.model import Chunk, Logits, Outcome

SHAPE = Shape(n_cells=512, n_seqs=6, n_batch=64, n_outputs=8, n_threads=1, ordered=True)


@pytest.fixture(scope="module")
def vocab() -> Iterator[Vocab]:
    opened = Vocab.open(starter())
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def weights(tiny: Path) -> Iterator[Weights]:
    told: list[float] = []
    loaded = Weights(tiny, 0, told.append)
    assert told[-1] == 1.0 and told == sorted(told)
    yield loaded
    loaded.close()


@pytest.fixture
def model(weights: Weights) -> Iterator[Model]:
    made = Model(weights, SHAPE)
    yield made
    made.close()


def run(model: Model, seq: int, tokens: list[int], *beside: Chunk) -> Logits:
    """Computes the tokens at the sequence's end; the last one's logits."""
    mine = Chunk(seq, model.length(seq), tokens, 1)
    decoded = model.decode([*beside, mine], 1)
    assert decoded.outcome is Outcome.OK
    return decoded.logits[-1].copy()


# ---- vocabulary --------------------------------------------------------------------------------


def test_text_survives_the_way_to_tokens_and_back(vocab: Vocab) -> None:
    for text in ("Hello, world!", "  two  spaces\n\n", "naïve 文字 🙂 \x00 end", ""):
        assert b"".join(map(vocab.piece, vocab.tokenize(text))).decode() == text


def test_the_text_of_a_special_token_becomes_one_only_when_asked(vocab: Vocab) -> None:
    start = vocab.special_tokens()["<|im_start|>"]
    assert vocab.tokenize("<|im_start|>", special=True) == [start]
    assert start not in vocab.tokenize("<|im_start|>")
    assert vocab.is_control(start)
    assert (vocab.piece(start), vocab.piece(start, special=True)) == (b"", b"<|im_start|>")


def test_no_bos_is_added_that_the_vocabulary_does_not_ask_for(vocab: Vocab) -> None:
    assert not vocab.add_bos
    assert vocab.bos not in vocab.tokenize("a", special=True)


def test_the_end_of_generation_tokens_are_known(vocab: Vocab) -> None:
    assert vocab.eos in vocab.eog_tokens()
    assert all(vocab.is_eog(id) for id in vocab.eog_tokens())


def test_the_header_can_be_read(vocab: Vocab) -> None:
    assert vocab.meta("general.architecture") == "llama"
    assert vocab.meta("no.such.key") is None
    assert vocab.n_ctx_train == 8192
    assert "im_start" in (vocab.meta("tokenizer.chat_template") or "")


@pytest.mark.parametrize("id", [-1, 10**6])
def test_a_token_outside_the_vocabulary_is_refused_and_does_not_end_the_process(
    vocab: Vocab, id: int
) -> None:
    for look in (vocab.piece, vocab.text, vocab.attr, vocab.is_control, vocab.is_eog):
        with pytest.raises(LlamaError):
            look(id)


# ---- loading -----------------------------------------------------------------------------------


def test_what_is_no_model_is_refused_with_the_reason(tmp_path: Path) -> None:
    foreign, truncated = tmp_path / "foreign.gguf", tmp_path / "truncated.gguf"
    foreign.write_bytes(b"not a model at all, and long enough to have a header")
    truncated.write_bytes(starter().read_bytes()[: 20 * 2**20])
    for path, word in (
        (foreign, "magic"),
        (truncated, "bounds"),
        (tmp_path / "absent.gguf", "no file"),
        (tmp_path, "no file"),
    ):
        with pytest.raises(LoadError, match=word):
            Weights(path, 0, lambda done: None)


def test_llama_cpp_writes_nothing_to_the_terminal(
    capfd: pytest.CaptureFixture[str], weights: Weights, tmp_path: Path
) -> None:
    Model(weights, SHAPE).close()
    with pytest.raises(LoadError):
        Vocab.open(tmp_path)
    assert capfd.readouterr() == ("", "")


# ---- preconditions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [Chunk(0, 0, [])],
        [Chunk(0, 1, [5])],  # a gap
        [Chunk(6, 0, [5])],  # the scratch sequence
        [Chunk(-1, 0, [5])],
        [Chunk(0, 0, [5]), Chunk(0, 1, [5])],  # twice the same sequence
        [Chunk(0, 0, [10**6])],
        [Chunk(0, 0, [-1])],
        [Chunk(0, 0, [5] * 65)],  # more rows than a batch
        [Chunk(0, 0, [5] * 9, 9)],  # more outputs than the buffer
        [Chunk(0, 0, [5], 2)],
    ],
)
def test_a_batch_that_would_end_the_process_is_refused_and_changes_nothing(
    model: Model, chunks: list[Chunk]
) -> None:
    assert model.decode(chunks, 1).outcome is Outcome.REFUSED
    assert model.length(0) == 0
    run(model, 0, [5, 6])


def test_when_the_cells_run_out_nothing_has_changed(weights: Weights) -> None:
    model = Model(weights, replace(SHAPE, n_cells=256))
    for n in range(4):
        seq, start = n % 2, (n // 2) * 64
        assert model.decode([Chunk(seq, start, [5] * 64)], 1).outcome is Outcome.OK
    assert model.decode([Chunk(2, 0, [5])], 1).outcome is Outcome.NO_ROOM
    assert [model.length(seq) for seq in range(3)] == [128, 128, 0]
    assert model.cut(1, 100)
    assert model.decode([Chunk(2, 0, [5])], 1).outcome is Outcome.NO_ROOM  # not in between
    model.clear()
    assert model.top == model.length(0) == 0
    run(model, 2, [5])
    model.close()


def test_a_single_exact_row_takes_one_cell_more_for_a_moment(weights: Weights) -> None:
    model = Model(weights, replace(SHAPE, n_cells=512))
    for at in range(0, 448, 64):
        assert model.decode([Chunk(0, at, [5] * 64)], 1).outcome is Outcome.OK
    assert model.decode([Chunk(0, 448, [5] * 62)], 1).outcome is Outcome.OK
    assert model.decode([Chunk(0, 510, [5], 1)], 3, exact=True).outcome is Outcome.OK
    assert model.top == 511 == 512 - PAD_CELLS
    assert model.decode([Chunk(0, 511, [5], 1)], 3, exact=True).outcome is Outcome.NO_ROOM
    assert (model.top, model.length(0)) == (511, 511)
    assert model.decode([Chunk(0, 511, [5], 1)], 1).outcome is Outcome.OK
    model.close()


def test_a_model_that_keeps_no_order_fills_freed_cells_at_once(weights: Weights) -> None:
    model = Model(weights, replace(SHAPE, n_cells=256, ordered=False))
    for seq in range(4):
        assert model.decode([Chunk(seq, 0, [5] * 64)], 1).outcome is Outcome.OK
    assert model.cut(1, 10)
    run(model, 4, [5])
    model.close()


def test_a_copy_needs_an_empty_target_and_a_source_that_is_long_enough(model: Model) -> None:
    run(model, 0, [5, 6, 7])
    run(model, 1, [5])
    for source, target, length in ((0, 1, 2), (0, 2, 4), (0, 0, 1), (0, 2, 0), (0, 99, 1)):
        with pytest.raises(LlamaError):
            model.copy(source, target, length)


# ---- the same logits, however the cells came about -----------------------------------------------


def test_logits_are_bit_equal_alone_beside_others_shared_and_restored(
    model: Model,
) -> None:
    prompt = list(b"The quick brown fox jumps over the lazy dog and then sleeps.")
    head, last = prompt[:-1], prompt[-1:]
    run(model, 0, head)
    expected = run(model, 0, last)

    run(model, 1, head[:5], Chunk(2, 0, [9] * 40))
    run(model, 1, head[5:])
    assert np.array_equal(run(model, 1, last, Chunk(2, 40, [8] * 50)), expected)

    model.copy(0, 3, len(head))
    assert np.array_equal(run(model, 3, last), expected)

    tail, whole = model.save(0, 7), model.save(0, 0)
    assert tail is not None and whole is not None and tail.size < whole.size
    model.cut(0, 0)
    model.copy(1, 0, 7)
    assert model.restore(0, tail) and model.length(0) == len(prompt)
    model.cut(0, len(head))
    assert np.array_equal(run(model, 0, last), expected)

    assert model.restore(4, whole) and model.cut(4, len(head))
    assert np.array_equal(run(model, 4, last), expected)


def test_a_single_row_is_computed_like_several_when_it_must_be_exact(model: Model) -> None:
    tokens = [(7 * i * i + 3) % 259 for i in range(300)]
    for at in range(0, 299, 60):
        assert model.decode([Chunk(0, at, tokens[at : min(at + 60, 299)])], 1).outcome is Outcome.OK
    last = Chunk(0, 299, tokens[299:], 1)
    found = []
    for threads, beside in ((1, []), (2, []), (3, []), (2, [Chunk(1, 0, [9])])):
        decoded = model.decode([last, *beside], threads, exact=True)
        assert decoded.logits.shape[0] == 1
        found.append(decoded.logits[0].copy())
        model.cut(0, 299)
        model.cut(1, 0)
    assert all(np.array_equal(found[0], other) for other in found[1:])


def test_with_values_of_another_type_than_keys_no_step_size_changes_a_bit(weights: Weights) -> None:
    shape = replace(SHAPE, n_cells=1024, n_batch=256, kv_type="f16-bf16")
    model = Model(weights, shape)
    tokens = [(7 * i * i + 3) % 259 for i in range(280)]
    found = []
    for rows, threads, beside in ((63, 1, 0), (256, 2, 1), (256, 1, 199)):
        for at in range(model.length(0), 279, rows):
            part = Chunk(0, at, tokens[at : min(at + rows, 279)])
            assert model.decode([part], 1).outcome is Outcome.OK
        others = [Chunk(1, 0, [9] * beside)] if beside else []
        decoded = model.decode([*others, Chunk(0, 279, tokens[279:], 1)], threads)
        found.append(decoded.logits[0].copy())
        model.cut(1, 0)
        model.cut(0, 279 if threads == 2 else 0)  # read in steps of 256 rows once only
    assert all(np.array_equal(found[0], other) for other in found[1:])
    model.close()


def test_a_state_that_does_not_continue_the_sequence_is_refused(model: Model) -> None:
    run(model, 0, [5, 6, 7, 8])
    tail = model.save(0, 2)
    assert tail is not None
    run(model, 1, [5])
    assert not model.restore(1, tail)
    assert not model.restore(1, tail[:-40])
    assert not model.restore(1, np.zeros(100, np.uint8))
    assert model.length(1) == 1
    run(model, 1, [6])


def test_the_probe_finds_the_exact_size_and_leaves_what_it_computed_last(model: Model) -> None:
    assert exactness.probe(model, model.n_vocab, 64, 1).exact_rows == 63
    assert exactness.probe(model, model.n_vocab, 20, 1).exact_rows == 15
    assert max(model.length(0), model.length(1)) >= 14


@pytest.mark.parametrize("real", [False, True])
def test_what_the_probe_does_not_try_is_equal_too(weights: Weights, real: bool) -> None:
    """Sizes between those of the ladder, more than 256 cells deep."""
    loaded = Weights(starter(), 0, lambda _: None) if real else weights
    model = Model(loaded, replace(SHAPE, n_cells=1024, n_batch=128, kv_type="f16-bf16"))
    assert exactness.probe(model, model.n_vocab, 128, 1).exact_rows == 128
    model.clear()
    deep = [(7 * i * i + 11 * i + 3) % 250 for i in range(271)]
    for at in range(0, 270, 90):
        assert model.decode([Chunk(0, at, deep[at : at + 90])], 1).outcome is Outcome.OK
    found = []
    for size in (1, 5, 65, 127) if real else range(1, 129):
        others = [Chunk(1, 0, (deep * size)[: size - 1])] if size > 1 else []
        decoded = model.decode([*others, Chunk(0, 270, deep[270:], 1)], 1, exact=True)
        found.append(decoded.logits[0].copy())
        model.cut(0, 270)
        model.cut(1, 0)
        if model.top > 800:  # cells are only filled upwards
            model.clear()
            for at in range(0, 270, 90):
                model.decode([Chunk(0, at, deep[at : at + 90])], 1)
    assert all(np.array_equal(found[0], other) for other in found[1:])
    model.close()
    if real:
        loaded.close()


def test_the_probe_finds_larger_exact_steps_where_keys_and_values_differ(weights: Weights) -> None:
    model = Model(weights, replace(SHAPE, n_batch=128, kv_type="f16-bf16"))
    assert exactness.probe(model, model.n_vocab, 128, 1).exact_rows == 128
    model.close()
    model = Model(weights, replace(SHAPE, n_batch=128))
    assert exactness.probe(model, model.n_vocab, 128, 1).exact_rows == 63
    model.close()


def test_the_file_is_named_by_bytes(tmp_path: Path, vocab: Vocab) -> None:
    strange = tmp_path / "mödel 🙂.gguf"
    os.symlink(starter(), strange)
    opened = Vocab.open(strange)
    assert opened.n_vocab == vocab.n_vocab
    opened.close()
    opened.close()
