"""llama.cpp's own samplers on a row of logits, to compare ours with."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp as C
import numpy as np


def survivors(
    logits: np.ndarray, samplers: Sequence[Any], before: Sequence[int] = ()
) -> dict[int, float]:
    """Token to logit of what the samplers leave, applied in order after they accepted `before`.
    Frees the samplers. Tokens that they set to minus infinity are left out."""
    data = (C.llama_token_data * logits.size)()
    view = np.ctypeslib.as_array(
        ctypes.cast(data, ctypes.POINTER(ctypes.c_float)), (logits.size, 3)
    )
    view.view(np.int32)[:, 0] = np.arange(logits.size)
    view[:, 1] = logits
    array = C.llama_token_data_array(data=data, size=logits.size, selected=-1, sorted=False)
    for sampler in samplers:
        for token in before:
            C.llama_sampler_accept(sampler, token)
        C.llama_sampler_apply(sampler, ctypes.byref(array))
        C.llama_sampler_free(sampler)
    floats = ctypes.cast(array.data, ctypes.POINTER(ctypes.c_float))
    left = np.ctypeslib.as_array(floats, (array.size, 3))
    left = np.ascontiguousarray(left[left[:, 1] > -np.inf])
    return dict(zip(left.view(np.int32)[:, 0].tolist(), left[:, 1].tolist(), strict=True))
