"""Which files of a repository are meant by what somebody types."""

from __future__ import annotations

import pytest

from hobnob import hub_files
from hobnob.hub_files import BadName, NoChoice, Wanted, choose, parse, quant

FILES = {
    "README.md": 10,
    "nice-Q8_0.gguf": 80,
    "nice-Q4_K_M.gguf": 40,
    "nice-Q4_K_S.gguf": 39,
    "nice-imatrix.gguf": 5,
    "mmproj-nice-f16.gguf": 7,
}
SPLIT = {f"BF16/big-BF16-{n:05}-of-00003.gguf": 100 + n for n in (1, 2, 3)}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("a/b", Wanted("a/b")),
        (" a/b-GGUF:q4_k_m ", Wanted("a/b-GGUF", "q4_k_m")),
        ("a/b:sub/x.gguf", Wanted("a/b", "sub/x.gguf")),
        ("hf.co/a/b:Q8_0", Wanted("a/b", "Q8_0")),
        ("https://huggingface.co/a/b", Wanted("a/b")),
        ("https://huggingface.co/a/b/", Wanted("a/b")),
        (
            "https://huggingface.co/a/b/blob/main/sub/x.gguf",
            Wanted("a/b", "sub/x.gguf", "main"),
        ),
        (
            "https://huggingface.co/a/b/resolve/v1/x.gguf?download=true",
            Wanted("a/b", "x.gguf", "v1"),
        ),
    ],
)
def test_a_name_is_read_as_people_write_it(typed: str, meant: Wanted) -> None:
    assert parse(typed) == meant


@pytest.mark.parametrize(
    "typed",
    ["", "a", "a/", "/b", "a/b/c", "../b", "a/..", "a/b\0", "a b/c", "-a/b", "a/b:../x.gguf"]
    + ["a/b:/etc/passwd", "a/b:x\ny", "a/b:c:d", "https://elsewhere.example/a/b", "a/" + "b" * 97],
)
def test_what_no_repository_can_be_called_is_refused(typed: str) -> None:
    with pytest.raises(BadName):
        parse(typed)


def test_without_a_word_more_the_usual_quantisation_is_taken_or_the_only_model() -> None:
    assert choose(FILES).files == ("nice-Q4_K_M.gguf",)
    assert choose({"x.gguf": 1, "mmproj-x.gguf": 1}).files == ("x.gguf",)


@pytest.mark.parametrize("part", ["Q8_0", "q8_0", "nice-Q8_0.gguf", "nice-q8_0", "NICE-Q8_0.GGUF"])
def test_a_quantisation_or_a_file_is_found_by_its_name(part: str) -> None:
    assert choose(FILES, part).files == ("nice-Q8_0.gguf",)


def test_all_files_of_a_split_model_are_one_choice() -> None:
    found = choose(FILES | SPLIT, "bf16")
    assert (found.files, found.size) == (tuple(SPLIT), 306)
    assert choose(SPLIT).files == tuple(SPLIT)
    assert choose(FILES | SPLIT, "BF16/big-BF16-00002-of-00003.gguf").files == tuple(SPLIT)


def test_a_split_model_that_is_not_whole_is_refused() -> None:
    del (broken := dict(SPLIT))["BF16/big-BF16-00002-of-00003.gguf"]
    with pytest.raises(NoChoice, match="1 files of this split model"):
        choose(broken)


def test_where_it_is_not_clear_the_choices_are_told_with_what_to_write() -> None:
    with pytest.raises(NoChoice, match="say which one") as caught:
        choose({"a-Q8_0.gguf": 8, "a-Q5_K_M.gguf": 5})
    assert [one.name for one in caught.value.choices] == ["Q5_K_M", "Q8_0"]
    with pytest.raises(NoChoice, match="There is no 'Q2_K'") as caught:
        choose(FILES, "Q2_K")
    assert len(caught.value.choices) == 3
    with pytest.raises(NoChoice, match="Several models fit 'Q8_0'") as caught:
        choose({"a-Q8_0.gguf": 8, "b-Q8_0.gguf": 5}, "Q8_0")
    assert [one.name for one in caught.value.choices] == ["b-Q8_0.gguf", "a-Q8_0.gguf"]


def test_a_repository_without_a_model_has_no_choices() -> None:
    with pytest.raises(NoChoice, match="no GGUF file") as caught:
        choose({"README.md": 1, "mmproj-x.gguf": 1, "../x.gguf": 1})
    assert caught.value.choices == []


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a-Q4_K_M.gguf", "Q4_K_M"),
        ("a.IQ2_XXS.gguf", "IQ2_XXS"),
        ("Q3_K_L/a-00001-of-00002.gguf", "Q3_K_L"),
        ("qwen2-7b-instruct-fp16.gguf", ""),
        ("a-UD-Q2_K_XL.gguf", "UD-Q2_K_XL"),
        ("a-f16.gguf", "F16"),
        ("gpt-oss-20b-MXFP4.gguf", "MXFP4"),
        ("a.gguf", ""),
    ],
)
def test_the_quantisation_is_read_from_the_name(name: str, found: str) -> None:
    assert quant(name) == found


def test_a_path_is_inside_only_as_a_plain_one() -> None:
    assert hub_files.is_inside("a/b.gguf")
    for odd in ("/a", "a//b", "./a", "a/../b", "a\\b", "a\nb", "", "C:a"):
        assert not hub_files.is_inside(odd), odd
