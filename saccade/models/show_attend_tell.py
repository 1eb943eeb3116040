"""From an image to a sentence: a recurrent captioner that looks before each word, and a Transformer that does.

    show:    cells a_1 ... a_L = the grid of an image encoder + row and column;  s_0 = bridge(mean of all cells)
    attend:  c_t = sigmoid(w . s_{t-1} + b) sum_i alpha_ti a_i,  alpha_t = softmax over i of v . tanh(W s_{t-1} + U a_i)
    tell:    s_t = LSTM(y_{t-1}, c_t, s_{t-1}),  p(y_t) from W [y_{t-1}; s_t; c_t]

Xu et al. 2015, "Show, attend and tell"; without attention c_t is the mean of all cells, as in Vinyals et al. 2015,
"Show and tell", but seen at each step. In the Transformer (Vaswani et al. 2017) the cells take the place of the source.
"""

from __future__ import annotations

from torch import Tensor, nn

from saccade.config.captions import CaptionTransformerSettings, ShowAttendTellSettings
from saccade.config.models import TransformerSettings
from saccade.errors import SaccadeError
from saccade.models.images import ImageEncoder, Size, image_encoder
from saccade.models.seq2seq import look_then_move, with_writer, without_attention
from saccade.models.shapes import EncoderDecoder, Memory, pooled
from saccade.models.transformer import TransformerDecoder, make_embedding, make_stack
from saccade.nn.layers import Output, xavier
from saccade.nn.positions import Grid2d, Sinusoidal


class Sight(nn.Module):
    """Images (B, 3, H, W) -> Memory of the cells of the grid and of nothing else, with their mean as summary.

    Cells of another `width` than the image encoder's are projected. Sines of row and column are added: attention alone
    would not know left from right. Initial law: Xavier uniform, biases zero.
    """

    def __init__(self, image: ImageEncoder, *, image_width: int, width: int):
        super().__init__()
        self.image = image
        self.cells, self.first = image.cells, int(image.class_token)  # a vector for the class is no place to look at
        self.project = None if width == image_width else nn.Linear(image_width, width)
        if width % 4:
            raise SaccadeError(f"cells that know their row and column need a width that 4 divides; got {width}")
        self.positions = Grid2d(Sinusoidal(width // 2), across=Sinusoidal(width // 2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.project is not None:
            xavier(self.project)

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        seen = self.image(source, mask)
        cells = seen.states[:, self.first :]  # (B, L, D')
        cells = cells if self.project is None else self.project(cells)
        grid = cells.unflatten(1, (self.cells[0], -1))  # (B, H, W, D)
        memory = Memory((grid + self.positions(grid)).flatten(1, 2), seen.mask)
        return Memory(memory.states, memory.mask, pooled(memory, "mean")[:, None])


def show_attend_tell(settings: ShowAttendTellSettings, target_size: int, size: Size) -> EncoderDecoder:
    """The captioner of images of that size."""
    image, width = image_encoder(settings.image, size=size)
    if settings.attend:
        writer = look_then_move(settings, width, gate=settings.gate)
    else:
        writer = without_attention(settings, width)
    return with_writer(Sight(image, image_width=width, width=width), writer, target_size, dropout=settings.dropout)


def caption_transformer(settings: CaptionTransformerSettings, target_size: int, size: Size) -> EncoderDecoder:
    """Likewise, with a decoder of Transformer blocks."""
    image, width = image_encoder(settings.image, size=size)
    shape = TransformerSettings(
        width=settings.width, heads=settings.heads, hidden=settings.hidden, dropout=settings.dropout
    )
    embedding = make_embedding(shape, target_size)
    return EncoderDecoder(
        Sight(image, image_width=width, width=settings.width),
        TransformerDecoder(embedding, make_stack(shape, settings.layers, causal=True, cross=True), cross=True),
        Output(settings.width, target_size, tied=embedding),
    )
