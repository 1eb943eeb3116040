"""The one attention against the formulas, on both of its paths; the kernel that ran; what it refuses."""

import pytest
import torch

from saccade import formulas as f
from saccade.nn.attention import Attention, Projections
from saccade.nn.cache import KeyValues
from saccade.nn.positions import RelativeBias, Rotary
from saccade.nn.scores import Additive, Bilinear, Dot, Gaussian

from .workbench import Operations, assert_agree, assert_close, assert_law, both_ways, here, on_meta, stir

FLASH = "_scaled_dot_product_flash_attention_for_cpu"
QUADRATIC = "_safe_softmax"  # what the kernel that holds all T x S weights calls; the flash kernel never does
WIDTH, MEMORY = 8, 6


def additive(score):
    def per_head(query, key):
        eye = torch.eye(query.shape[-1])
        each = [f.additive_score(query[:, h], key[:, h], eye, eye, vector) for h, vector in enumerate(score.vector)]
        return torch.stack(each, dim=1)

    return per_head


# how to make a score for so many heads of width K, and its formula
SCORES = {
    "scaled dot": (lambda heads, width: None, lambda score: f.scaled_dot_score),
    "dot": (lambda heads, width: Dot(), lambda score: f.dot_score),
    "additive": (lambda heads, width: Additive(width, heads=heads), additive),
    "bilinear": (
        lambda heads, width: Bilinear(width, width, heads=heads),
        lambda score: lambda query, key: f.bilinear_score(query, key, score.weight),
    ),
    "gaussian": (
        lambda heads, width: Gaussian(heads=heads),
        lambda score: lambda query, key: f.gaussian_score(query, key, score.log_sigma.exp()[:, None, None]),
    ),
}
HEADS = [(1, 1), (2, 2), (4, 4), (4, 2), (4, 1)]
SEEN = ["everything", "mask", "causal", "allowed", "all three"]


def attention_with(score, heads=2, kv_heads=None, **options):
    made = SCORES[score][0](heads, WIDTH // heads)
    return stir(Attention(WIDTH, heads=heads, kv_heads=kv_heads, score=made, **options))


def hide(seen, rows=2, asking=5, cells=7):
    """Real cells, causality and what else is allowed, with no row left blind; and all of them as one mask."""
    mask = torch.rand(rows, cells) > 0.4 if seen in ("mask", "all three") else None
    allowed = torch.rand(rows, 1, asking, cells) > 0.4 if seen in ("allowed", "all three") else None
    for each in (mask, allowed):
        if each is not None:
            each[..., 0] = True
    causal = seen in ("causal", "all three")
    together = torch.ones(rows, 1, asking, cells, dtype=torch.bool)
    together = together if mask is None else together & mask[:, None, None]
    together = together if allowed is None else together & allowed
    together = together & f.causal_mask(torch.arange(asking), torch.arange(cells)) if causal else together
    return mask, causal, allowed, together


def weights_of(attention):
    return {name: tensor for name, tensor in attention.named_parameters() if not name.startswith("score")}


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize("score", SCORES)
def test_both_paths_equal_the_formula_in_value_and_gradient(score, heads, kv_heads, seen):
    mask, causal, allowed, together = hide(seen)
    attend = attention_with(score, heads, kv_heads, memory_width=MEMORY, causal=causal)
    x, y = torch.randn(2, 5, WIDTH, requires_grad=True), torch.randn(2, 7, MEMORY, requires_grad=True)
    expected = f.multi_head_attention(
        x,
        y,
        weights_of(attend),
        heads=heads,
        kv_heads=kv_heads,
        mask=None if seen == "everything" else together,
        score=SCORES[score][1](attend.score),
    )
    kv = attend.remember(y, mask)
    assert_agree(attend(x, kv, allowed), expected, x, y, *attend.parameters())
    assert_agree(attend.read(attend.weigh(x, kv, allowed), kv), expected, x, y, *attend.parameters())


def test_causal_self_attention_equals_the_formula():
    attend = attention_with("scaled dot", causal=True)
    x = torch.randn(2, 5, WIDTH, requires_grad=True)
    expected = f.multi_head_attention(
        x, x, weights_of(attend), heads=2, mask=f.causal_mask(torch.arange(5), torch.arange(5))
    )
    assert_agree(attend(x, attend.remember(x)), expected, x, *attend.parameters())


@pytest.mark.parametrize("score", SCORES)
def test_weights_are_those_of_the_formula_and_sum_to_one(score):
    mask, _, allowed, together = hide("all three")
    attend = attention_with(score, causal=True)
    x, y = torch.randn(2, 5, WIDTH), torch.randn(2, 7, WIDTH)
    query = f.split_heads(attend.query(x), 2)
    key = f.split_heads(attend.key(y), 2)
    weights = attend.weigh(x, attend.remember(y, mask), allowed)
    assert_close(weights, f.attention_weights(SCORES[score][1](attend.score)(query, key), together))
    assert_close(weights.sum(-1), torch.ones(2, 2, 5))


@pytest.mark.parametrize("score", ["dot", "scaled dot"])
def test_nothing_projected_is_the_plain_attention(score):
    none = Projections(query=False, key=False, value=False, output=False)
    attend = attention_with(score, 1, project=none)
    x, y = torch.randn(2, 5, WIDTH), torch.randn(2, 7, WIDTH)
    assert not list(attend.parameters())
    assert_close(attend(x, attend.remember(y)), f.attention(x, y, y, score=SCORES[score][1](None)))


def test_keys_and_values_of_other_widths_equal_the_formula():
    attend = attention_with("scaled dot", project=Projections(key_width=3, value_width=5))
    x, y = torch.randn(2, 5, WIDTH, requires_grad=True), torch.randn(2, 7, WIDTH)
    expected = f.multi_head_attention(x, y, weights_of(attend), heads=2)
    assert_agree(attend(x, attend.remember(y)), expected, x, *attend.parameters())
    assert (attend.key.weight.shape, attend.value.weight.shape) == ((6, WIDTH), (10, WIDTH))


def test_the_context_width_is_what_comes_out():
    for project in (Projections(value_width=5), Projections(value_width=5, output=False)):
        attend = Attention(WIDTH, heads=2, project=project)
        x = torch.randn(1, 3, WIDTH)
        assert attend(x, attend.remember(x)).shape[-1] == attend.context_width


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_rotary_positions_turn_queries_and_keys_as_the_formula_does(layout):
    attend = attention_with("scaled dot", positions=Rotary(4, layout=layout))
    turn = {"halves": f.rotary, "interleaved": f.rotary_interleaved}[layout]

    def score(query, key):
        return f.scaled_dot_score(
            turn(query, torch.arange(5, dtype=query.dtype)), turn(key, torch.arange(7, dtype=key.dtype))
        )

    x, y = torch.randn(2, 5, WIDTH, requires_grad=True), torch.randn(2, 7, WIDTH, requires_grad=True)
    expected = f.multi_head_attention(x, y, weights_of(attend), heads=2, score=score)
    assert_agree(attend(x, attend.remember(y)), expected, x, y, *attend.parameters())


@pytest.mark.parametrize("seen", SEEN)
def test_relative_positions_add_the_formula_s_bias_on_both_paths(seen):
    mask, causal, allowed, together = hide(seen)
    attend = attention_with("scaled dot", positions=RelativeBias(2, reach=3), causal=causal)
    x, y = torch.randn(2, 5, WIDTH, requires_grad=True), torch.randn(2, 7, WIDTH, requires_grad=True)

    def score(query, key):
        return f.scaled_dot_score(query, key) + f.relative_bias(
            attend.positions.table, torch.arange(5), torch.arange(7)
        )

    expected = f.multi_head_attention(x, y, weights_of(attend), heads=2, mask=together, score=score)
    kv = attend.remember(y, mask)
    assert_agree(attend(x, kv, allowed), expected, x, y, *attend.parameters())
    assert_agree(attend.read(attend.weigh(x, kv, allowed), kv), expected, x, y, *attend.parameters())


@pytest.mark.parametrize("learning", [True, False], ids=["with gradients", "without"])
@pytest.mark.parametrize("positions", [None, RelativeBias], ids=["plain", "relative"])
@pytest.mark.parametrize("score", SCORES)
def test_a_fully_hidden_row_reads_as_zeros_on_both_paths(score, positions, learning):
    """Without gradients a bias goes to the flash kernel, with them to the quadratic one."""
    bare = Projections(output=False)
    attend = attention_with(score, positions=None if positions is None else positions(2), project=bare)
    mask = torch.tensor([[True] * 7, [False] * 7])
    x, y = torch.randn(2, 5, WIDTH), torch.randn(2, 7, WIDTH)
    with torch.set_grad_enabled(learning):
        x.requires_grad_(learning)
        kv = attend.remember(y, mask)
        for context in (attend(x, kv), attend.read(attend.weigh(x, kv), kv)):
            assert_close(context[1], torch.zeros(5, WIDTH))
            assert bool((context[0] != 0).all())
            if learning:
                slopes = torch.autograd.grad(context.sum(), (x, *attend.parameters()), retain_graph=True)
                assert all(bool(slope.isfinite().all()) for slope in slopes)


@pytest.mark.parametrize("positions", [None, lambda: Rotary(4), lambda: RelativeBias(2, reach=3)])
def test_a_cache_filled_to_another_place_in_each_row_reads_as_the_whole_sentence_does(positions):
    attend = attention_with("scaled dot", positions=None if positions is None else positions(), causal=True)
    x = torch.randn(2, 6, WIDTH)
    whole = attend(x, attend.remember(x))
    kv = attend.cache(2, 16, x).since(torch.tensor([0, 0]))
    kv = kv.append(attend.remember(x[:, :4], at=torch.arange(4)))  # the second row's cells 2 and 3 are overwritten
    start = torch.tensor([4, 2])
    new = torch.stack([x[0, 4:6], x[1, 2:4]])
    at = start[:, None] + torch.arange(2)
    kv = kv.since(start).append(attend.remember(new, at=at))
    expected = torch.stack([whole[0, 4:6], whole[1, 2:4]])
    assert_close(attend(new, kv), expected)
    assert_close(attend.read(attend.weigh(new, kv), kv), expected)


@pytest.mark.parametrize("positions", [None, lambda: Rotary(4), lambda: RelativeBias(2, reach=3)])
def test_a_trap_as_many_questions_as_cells_are_no_fresh_square_where_they_begin_late(positions):
    """The kernel's own triangle starts at the upper left corner, wherever the rows stand."""
    attend = attention_with("scaled dot", positions=None if positions is None else positions(), causal=True)
    x, kv = torch.randn(2, 5, WIDTH), attend.remember(torch.randn(2, 5, WIDTH)).since(torch.tensor([2, 0]))
    weights = attend.weigh(x, kv)
    late = f.causal_mask(torch.tensor([[2, 3, 4, 5, 6], [0, 1, 2, 3, 4]]), torch.arange(5))  # (B, T, S)
    assert torch.equal(weights > 0, late[:, None].expand(2, 2, 5, 5))
    assert_close(attend(x, kv), attend.read(weights, kv))


@pytest.mark.parametrize("score", SCORES)
def test_hypotheses_that_share_a_memory_read_as_if_each_had_its_own(score):
    attend = attention_with(score)
    x, y = torch.randn(6, 2, WIDTH), torch.randn(2, 7, WIDTH)
    mask = hide("mask")[0]
    shared, own = attend.remember(y, mask), attend.remember(y.repeat_interleave(3, 0), mask.repeat_interleave(3, 0))
    assert_close(attend(x, shared), attend(x, own))
    assert_close(attend.weigh(x, shared), attend.weigh(x, own))
    assert_close(attend.read(attend.weigh(x, shared), shared), attend(x, own))


def test_a_tap_sees_the_weights_and_changes_nothing():
    attend, x, seen = attention_with("scaled dot"), torch.randn(2, 5, WIDTH), []
    kv = attend.remember(x)
    untapped = attend(x, kv)
    attend.tap = seen.append
    assert_close(attend(x, kv), untapped)
    attend.tap = None
    attend(x, kv)
    assert len(seen) == 1
    assert_close(seen[0], attend.weigh(x, kv))


def test_a_tap_sees_the_weights_before_dropout():
    attend, x, seen = attention_with("scaled dot", dropout=0.5), torch.randn(2, 5, WIDTH), []
    attend.tap = seen.append
    attend(x, attend.remember(x))
    assert_close(seen[0].sum(-1), torch.ones(2, 2, 5))


def test_dropped_weights_keep_their_expectation():
    attend = Attention(WIDTH, dropout=0.25, project=Projections(output=False))
    x = torch.randn(1, 1, WIDTH).expand(4000, 1, WIDTH)
    kv = attend.remember(torch.randn(1, 40, WIDTH))
    dropped, exact = attend(x, kv), attend.eval()(x, kv)
    assert not torch.equal(dropped, exact)
    torch.testing.assert_close(dropped.mean(0), exact.mean(0), rtol=0, atol=0.02)


# The kernel that ran


def kernels(attend, x, kv, allowed=None):
    with Operations() as ran:
        attend(x, kv, allowed)
    return {name for name in ran.names if "scaled_dot_product" in name or "softmax" in name}


def plain():
    attend, x = Attention(16, heads=4), torch.randn(2, 5, 16)
    return attend, x, attend.remember(x)


def masked():
    attend, x = Attention(16, heads=4), torch.randn(2, 5, 16)
    return attend, x, attend.remember(x, torch.tensor([[True] * 5, [True] * 3 + [False] * 2]))


def causal_and_fresh():
    attend, x = Attention(16, heads=4, causal=True), torch.randn(2, 5, 16)
    return attend, x, attend.remember(x)


def with_a_cache():
    attend, x = Attention(16, heads=4, causal=True), torch.randn(2, 1, 16)
    return attend, x, attend.cache(2, 16, x).since(torch.tensor([3, 1])).append(attend.remember(x))


def grouped():
    attend, x = Attention(16, heads=4, kv_heads=2), torch.randn(2, 5, 16)
    return attend, x, attend.remember(x)


def folded():
    attend = Attention(16, heads=4)
    return attend, torch.randn(6, 1, 16), attend.remember(torch.randn(2, 5, 16))


def rotary():
    attend, x = Attention(16, heads=4, causal=True, positions=Rotary(4)), torch.randn(2, 5, 16)
    return attend, x, attend.remember(x)


def dropout_at_use():
    attend, x = Attention(16, heads=4, dropout=0.1).eval(), torch.randn(2, 5, 16)
    return attend, x, attend.remember(x)


FUSED = [plain, masked, causal_and_fresh, with_a_cache, grouped, folded, rotary, dropout_at_use]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", FUSED)
def test_the_flash_kernel_runs(case, dtype):
    torch.set_default_dtype(dtype)
    assert kernels(*case()) == {FLASH}


def test_the_flash_kernel_runs_with_a_full_mask():
    assert kernels(*masked(), torch.rand(2, 4, 5, 5) > 0.5) == {FLASH}


@pytest.mark.parametrize("case", FUSED)
def test_no_fused_kernel_runs_while_somebody_looks(case):
    attend, x, kv = case()
    attend.tap = lambda weights: None
    assert kernels(attend, x, kv) == {"_softmax"}


def dropout_in_training():
    attend, x = Attention(16, heads=4, dropout=0.1), torch.randn(2, 5, 16)
    return attend, x, attend.remember(x)


def values_of_another_width():
    attend, x = Attention(16, heads=4, project=Projections(value_width=6)), torch.randn(2, 5, 16)
    return attend, x, attend.remember(x)


def bias_that_learns():
    attend, x = Attention(16, heads=4, positions=RelativeBias(4)), torch.randn(2, 5, 16)
    return attend, x, attend.remember(x)


@pytest.mark.parametrize("case", [dropout_in_training, values_of_another_width, bias_that_learns])
def test_a_trap_the_flash_kernel_refuses_and_all_weights_are_held_in_silence(case):
    assert kernels(*case()) == {QUADRATIC}


def test_a_bias_goes_to_the_flash_kernel_when_nothing_learns():
    with torch.no_grad():
        assert kernels(*bias_that_learns()) == {FLASH}


# Initial law


@both_ways
def test_projections_start_xavier_uniform_with_zero_biases(build):
    attend = build(lambda: Attention(160, heads=4, kv_heads=2, memory_width=320))
    for projection in (attend.query, attend.key, attend.value, attend.output):
        outputs, inputs = projection.weight.shape
        assert_law(projection.weight, 2 / (inputs + outputs), uniform=True)
        assert not projection.bias.any()


def test_a_model_built_on_meta_attends_like_one_built_here():
    whole = here(lambda: Attention(WIDTH, heads=2, score=Additive(4, heads=2), positions=Rotary(4)))
    loaded = on_meta(lambda: Attention(WIDTH, heads=2, score=Additive(4, heads=2), positions=Rotary(4)))
    loaded.load_state_dict(whole.state_dict())
    x = torch.randn(2, 5, WIDTH)
    assert_close(loaded(x, loaded.remember(x)), whole(x, whole.remember(x)))


# What is refused


@pytest.mark.parametrize(("width", "heads"), [(8, 3), (8, 0), (8, -2), (8, 16)])
def test_heads_that_do_not_divide_the_width_are_refused(width, heads):
    with pytest.raises(ValueError, match=rf"{heads} heads do not divide the width {width}; try [1248] heads"):
        Attention(width, heads=heads)


@pytest.mark.parametrize("kv_heads", [3, 8, -1])
def test_kv_heads_that_do_not_divide_the_heads_are_refused(kv_heads):
    with pytest.raises(ValueError, match=rf"kv_heads={kv_heads} must divide heads=4; try \d"):
        Attention(8, heads=4, kv_heads=kv_heads)


def test_no_kv_heads_at_all_are_refused():
    with pytest.raises(ValueError, match="kv_heads=0"):
        Attention(8, heads=4, kv_heads=0)


def test_an_unprojected_memory_that_the_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="kv_heads=4 must divide the memory width 6"):
        Attention(8, heads=4, memory_width=6, project=Projections(value=False))


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_of_dropped_weights_outside_zero_to_one_is_refused(share):
    with pytest.raises(ValueError, match=str(share)):
        Attention(8, dropout=share)


@pytest.mark.parametrize("shape", [(2, 5, 7), (5, 8), (2, 1, 5, 8)])
def test_a_memory_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=rf"the memory must have shape \(batch, positions, 8\); got \({shape[0]}, "):
        Attention(8).remember(torch.randn(shape))


@pytest.mark.parametrize("look", [Attention.forward, Attention.weigh])
@pytest.mark.parametrize("shape", [(2, 5, 7), (5, 8)])
def test_asking_vectors_of_another_shape_are_refused(shape, look):
    attend = Attention(8)
    with pytest.raises(ValueError, match=rf"the asking vectors must have shape .*8\); got \({shape[0]}, "):
        look(attend, torch.randn(shape), attend.remember(torch.randn(2, 5, 8)))


def test_empty_sequences_are_refused():
    attend = Attention(8)
    with pytest.raises(ValueError, match=r"the memory has no positions.*\(2, 0, 8\)"):
        attend.remember(torch.randn(2, 0, 8))
    with pytest.raises(ValueError, match=r"the asking vectors has no positions.*\(2, 0, 8\)"):
        attend(torch.randn(2, 0, 8), attend.remember(torch.randn(2, 5, 8)))


@pytest.mark.parametrize("shape", [(2, 4), (5, 2), (2, 1, 5), (1, 5)])
def test_a_mask_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=rf"mask must have shape \(2, 5\); got \({', '.join(map(str, shape))}\)"):
        Attention(8).remember(torch.randn(2, 5, 8), torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("dtype", [torch.float32, torch.long, torch.uint8])
def test_masks_that_are_not_bool_are_refused(dtype):
    attend, x = Attention(8), torch.randn(2, 5, 8)
    with pytest.raises(ValueError, match=f"mask must be bool, True = may be seen; got {dtype}"):
        attend.remember(x, torch.ones(2, 5, dtype=dtype))
    with pytest.raises(ValueError, match=f"allowed must be bool, True = may be seen; got {dtype}"):
        attend(x, attend.remember(x), torch.ones(2, 1, 5, 5, dtype=dtype))


@pytest.mark.parametrize("look", [Attention.forward, Attention.weigh])
@pytest.mark.parametrize(
    "shape",
    [(2, 1, 5, 4), (2, 1, 4, 7), (3, 1, 5, 7), (2, 5, 7), (2, 3, 5, 7), (1, 2, 1, 5, 7)],
    ids=["cells", "asking", "rows", "two axes", "heads", "five axes"],
)
def test_allowed_of_another_shape_is_refused(shape, look):
    attend = Attention(8, heads=4)
    kv = attend.remember(torch.randn(2, 7, 8))
    with pytest.raises(ValueError, match=rf"allowed has shape \({', '.join(map(str, shape))}\)"):
        look(attend, torch.randn(2, 5, 8), kv, torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("look", [Attention.forward, Attention.weigh])
@pytest.mark.parametrize("shape", [(5, 1, 1, 7), (1, 1, 5, 7)], ids=["rows", "asking"])
def test_allowed_that_would_stretch_a_single_row_or_question_is_refused(shape, look):
    attend = Attention(8, heads=4)
    kv = attend.remember(torch.randn(1, 7, 8))
    with pytest.raises(ValueError, match=rf"allowed has shape \({', '.join(map(str, shape))}\)"):
        look(attend, torch.randn(1, 1, 8), kv, torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_that_do_not_fit_the_memory_are_refused(rows):
    attend = Attention(8)
    with pytest.raises(ValueError, match=f"{rows} asking rows do not fit a memory of 2 rows"):
        attend(torch.randn(rows, 1, 8), attend.remember(torch.randn(2, 5, 8)))


@pytest.mark.parametrize("options", [{"causal": True}, {"positions": Rotary(8)}])
def test_hypotheses_cannot_share_a_memory_where_order_matters(options):
    attend = Attention(8, **options)
    with pytest.raises(ValueError, match="4 rows cannot share a memory of 2 rows"):
        attend(torch.randn(4, 1, 8), attend.remember(torch.randn(2, 5, 8)))


def test_rotary_positions_of_another_width_than_the_heads_are_refused():
    """Two angles would be spread over eight columns in silence."""
    with pytest.raises(ValueError, match=r"2\b.*8|8\b.*2"):
        attend = Attention(16, heads=2, positions=Rotary(2))
        attend.remember(torch.randn(1, 3, 16))


def test_a_memory_made_by_hand_is_as_good_as_one_remembered():
    attend, x = attention_with("scaled dot"), torch.randn(2, 5, WIDTH)
    kv = attend.remember(x)
    assert_close(attend(x, KeyValues(kv.key, kv.value)), attend(x, kv))
