"""What the processor's own code is given, field by field as the headers of `cpp` have it."""

from __future__ import annotations

import ctypes


class Map(ctypes.Structure):
    """W x + b, as products.h has it."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("inputs", "outputs", "bytes")),
        *((name, ctypes.c_void_p) for name in ("packed", "scale", "bias")),
    )


class Norm(ctypes.Structure):
    """Layer norm where `centred`, or the root of the mean square."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weight", "bias")),
        ("epsilon", ctypes.c_double),
        ("centred", ctypes.c_int64),
    )


class Block(ctypes.Structure):
    """Maps, norms and the order of a Transformer's block."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("project", "output", "ask", "answer", "expand", "gate", "contract")),
        *((name, Norm) for name in ("around_attention", "around_cross", "around_feed_forward")),
        *((name, ctypes.c_int64) for name in ("pre", "activation")),
    )


class Step(ctypes.Structure):
    """One new position of each row: what is read and written."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("layers", "rows", "sentences", "width", "heads", "groups")),
        *((name, ctypes.c_int64) for name in ("head_width", "hidden")),
        *((name, ctypes.c_double) for name in ("scale", "cross_scale")),
        *((name, ctypes.c_void_p) for name in ("tokens", "table")),
        ("table_scale", ctypes.c_double),
        ("words", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("places", "at", "x", "keys", "values")),
        *((name, ctypes.c_int64) for name in ("capacity", "filled")),
        *((name, ctypes.c_void_p) for name in ("sine", "cosine")),
        ("interleaved", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("cell", "sees", "memory_keys", "memory_values")),
        *((name, ctypes.c_int64) for name in ("cells", "sentence_stride", "head_stride", "cell_stride")),
        *((name, ctypes.c_void_p) for name in ("real", "last", "predict", "log_p", "place")),
        ("first", ctypes.c_int64),
    )


class Ways(ctypes.Structure):
    """Where the best ways to go on are written."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("row", "word", "log_p", "score", "highest"))


class Screen(ctypes.Structure):
    """A table in eight bits and as it is, and how far they are apart, as screen.h has it."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("rough", "table", "error", "length"))


class Stretch(ctypes.Structure):
    """Steps of a search: what is read and written."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("steps", "each", "count", "end")),
        ("forbidden", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("forbidden_count", "scored")),
        ("screen", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("looked_at", "computed")),
        *((name, ctypes.c_void_p) for name in ("factor", "last_factor", "ranks")),
        ("best", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("score", "row", "word", "log_p", "ended_in", "ended", "end_log_p")),
        ("ends", ctypes.c_int64),
        ("left", ctypes.c_void_p),
        ("sentences_left", ctypes.c_int64),
        ("last", Ways),
        ("sees", ctypes.c_void_p),
    )


class Memory(ctypes.Structure):
    """What all layers of a decoder remember: what is read and written."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("map", "states")),
        *((name, ctypes.c_int64) for name in ("sentences", "cells", "heads", "head_width")),
        *((name, ctypes.c_void_p) for name in ("real", "keys", "values")),
    )


class Loss(ctypes.Structure):
    """Rows, the output layer they go through, and where their losses and gradients are written."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "width", "words", "at_once")),
        *((name, ctypes.c_void_p) for name in ("x", "weight", "bias", "target")),
        ("smoothing", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("x_gradient", "weight_gradient", "bias_gradient")),
        *((name, ctypes.c_void_p) for name in ("smoothed", "surprise", "correct")),
    )


class Strided(ctypes.Structure):
    """Vectors (B, H, T, K), whose numbers lie one after the other, with the strides of everything else."""

    _fields_ = (("data", ctypes.c_void_p), *((name, ctypes.c_int64) for name in ("batch", "head", "position")))


class ShortAttention(ctypes.Structure):
    """Attention over few cells: what is read, and what is written forward and backward."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "heads", "groups", "asking", "cells")),
        *((name, ctypes.c_int64) for name in ("key_width", "value_width", "causal")),
        ("scale", ctypes.c_double),
        ("sees", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("sees_batch", "sees_head", "sees_asking")),
        *((name, Strided) for name in ("query", "key", "value")),
        ("weights", ctypes.c_void_p),
        *((name, Strided) for name in ("seen", "query_gradient", "key_gradient", "value_gradient")),
    )
