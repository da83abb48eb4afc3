"""Small PyTorch models of the kinds that people make; importing this takes seconds."""

from typing import Any

import torch
from torch import nn


class Perceptron(nn.Module):
    """Two layers with dropout between them, which is off in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.dropout = nn.Dropout(0.5)
        self.second = nn.Linear(16, 4)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.second(self.dropout(torch.relu(self.first(features))))


class Convolutional(nn.Module):
    """Convolutions, batch normalisation and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.body = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=2), nn.GELU())
        self.head = nn.Linear(8, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.stem(images)).mean((2, 3)))


class Transformer(nn.Module):
    """Embeddings and two encoder layers, with a mask of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.encoder(self.embed(ids), src_key_padding_mask=mask == 0)


class Nested(nn.Module):
    """Tensors in a tuple and in a dict, and arguments that are no tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(3, 3)

    def forward(
        self,
        x: torch.Tensor,
        pair: Any,
        batch: Any,
        times: int = 1,
        shift: bool = False,
        *,
        scale: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        total = self.project(x) * times + pair[0] - pair[1] + (1 if shift else 0)
        return {"total": total if scale is None else total * scale, "other": batch["v"] * 2}


class Second(nn.Module):
    """The first argument is not read."""

    def forward(self, unread: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Unconvertible(nn.Module):
    """A decomposition that OpenVINO has no rule for."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svd(x).S


def seeded(model: type[nn.Module]) -> nn.Module:
    """A model with the same weights each time, in training mode."""
    torch.manual_seed(0)
    return model()


def exported(model: type[nn.Module], *args: Any, dynamic: Any = None, **kwargs: Any) -> Any:
    """The `torch.export` program of a model in evaluation mode."""
    return torch.export.export(seeded(model).eval(), args, kwargs, dynamic_shapes=dynamic)
