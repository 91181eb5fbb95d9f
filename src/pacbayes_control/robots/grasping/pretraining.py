"""Training the compact extractor, and a prior over the layers after it, on labelled objects.

The network learns two things at once: which grasps of the grid succeed, through a layer that is
thrown away afterwards, and a grasp of its own, through the three layers that policies have. Then
the extractor is frozen, and the three layers are trained on with noise in their weights as large as
the prior's: what is left is a prior whose draws, and not its mean alone, grasp well.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.grasping import compact
from pacbayes_control.robots.grasping.extras import needed
from pacbayes_control.robots.grasping.labels import Grid, Labels
from pacbayes_control.robots.grasping.policy import Network, forward, jet
from pacbayes_control.robots.grasping.surrogates import near_failures
from pacbayes_control.robots.grasping.weights import write_tensors
from pacbayes_control.tasks.environments import Environments, generator


@dataclass(frozen=True)
class Training:
    """How to train."""

    epochs: int = 150  # of the extractor
    head_epochs: int = 40  # of the layers after it, with noise
    batch: int = 128
    step_size: float = 1e-3
    decay: float = 0.2  # of weights
    noise: float = 0.1  # of the prior, relative to the typical weight of each layer


Told = Callable[[int, int], None]  # epochs done, of how many


def pretrain(
    labels: Labels,
    file: Path,
    training: Training | None = None,
    seed: int = 0,
    device: str | None = None,
    progress: Told | None = None,
) -> None:
    """Train on labelled objects, and write the extractor and the prior to a file.

    device: of PyTorch; by default a GPU where there is one. The last bits of the weights depend on
    the device and on the number of its threads.
    """
    if labels.grid.angles % 2:
        raise ValueError(
            f"objects are turned by right angles in training: a grid of {labels.grid.angles} "
            "angles has none, an even number has"
        )
    torch = needed("torch", "training a network")
    training = training or Training()
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(seed)
    images = torch.as_tensor(_images(labels.environments), device=device)
    table = torch.as_tensor(labels.failures, device=device)
    eyes = compact.network().to(device)
    shape = Network(_Sized(compact.FEATURES))
    head = _start(shape, torch, device, seed)
    grid_layer = torch.nn.Linear(compact.FEATURES, len(labels.grid.grasps)).to(device)
    total, size = training.epochs + training.head_epochs, training.step_size

    def grasp_cost(policy: Any, features: Any, failed: Any) -> Any:
        grasps = shape.decoded(forward(shape, policy, features))
        return near_failures(failed, labels.grid, *grasps).mean()

    def both(seen: Any, failed: Any) -> Any:
        features = eyes(seen)
        guess = torch.nn.functional.binary_cross_entropy_with_logits
        return grasp_cost(head, features, failed) + guess(grid_layer(features), 1 - failed)

    def noisy(seen: Any, failed: Any) -> Any:
        return grasp_cost(head + widths * torch.randn_like(head), eyes(seen), failed)

    def descend(loss: Any, optimiser: Any, schedule: Any, epochs: range) -> None:
        for epoch in epochs:
            for rows in torch.randperm(len(images), device=device).split(training.batch):
                optimiser.zero_grad()
                loss(*_mirrored(images[rows], table[rows], labels.grid, torch)).backward()
                optimiser.step()
                schedule.step()
            if progress:
                progress(epoch + 1, total)

    batches = -(-len(images) // training.batch)
    everything = [*eyes.parameters(), *grid_layer.parameters(), head]
    optimiser = torch.optim.AdamW(everything, lr=size, weight_decay=training.decay)
    steps = training.epochs * batches
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2 * size, steps)
    descend(both, optimiser, schedule, range(training.epochs))
    eyes.eval().requires_grad_(False)
    widths = _widths(shape, head.detach(), training.noise, torch)
    optimiser = torch.optim.Adam([head], lr=size)
    steps = training.head_epochs * batches
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    descend(noisy, optimiser, schedule, range(training.epochs, total))
    _write(file, eyes, head.detach(), widths, labels.environments)


def _write(file: Path, eyes: Any, mean: Any, widths: Any, seen: Environments) -> None:
    tensors = {
        f"extractor.{name}": tensor.cpu().numpy().astype(np.float16)
        for name, tensor in eyes.state_dict().items()
    }
    tensors["prior.mean"] = mean.cpu().numpy().astype(np.float32)
    tensors["prior.variance"] = (widths**2).cpu().numpy().astype(np.float32)
    words = f"learnt on {len(seen):,} other objects, with its extractor"
    write_tensors(file, tensors, {"seen": json.dumps([list(seen.range)]), "origin": words})


@dataclass(frozen=True)
class _Sized:
    """An extractor that is still in training: only its size is known."""

    size: int
    name = "compact"
    digest = ""
    seen = ()

    def features(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        raise NotImplementedError


def _images(environments: Environments) -> NDArray[np.float32]:
    return np.concatenate([jet(part.arrays()["heights"]) for part in environments.chunks(256)])


def _start(shape: Network, torch: Any, device: str, seed: int) -> Any:
    """Weights to begin with, of a size that lets sigmoids pass signals on."""
    rng = generator(seed, "pretraining", of="policies")
    parts = []
    for inputs, outputs in shape.shapes:
        parts += [rng.normal(0, 2 / np.sqrt(inputs), inputs * outputs), np.zeros(outputs)]
    start = np.concatenate(parts).astype(np.float32)
    return torch.tensor(start, device=device, requires_grad=True)


def _widths(shape: Network, head: Any, noise: float, torch: Any) -> Any:
    """The prior's standard deviations: of each layer, relative to its typical weight."""
    parts = []
    for weights, biases in shape.layers(head):
        size = noise * weights.pow(2).mean().sqrt()
        parts += [size.expand(weights.numel()), size.expand(biases.numel())]
    return torch.cat(parts)


def _mirrored(images: Any, table: Any, grid: Grid, torch: Any) -> tuple[Any, Any]:
    """The same objects, a batch turned by right angles and mirrored at random, with their labels.

    Rows of an image run along y and columns along x; tables are Δx × Δy × θ.
    """
    failed = table.reshape(-1, *grid.shape).float()
    turns, flip = int(torch.randint(4, ())), bool(torch.randint(2, ()))
    for _ in range(turns):  # by a right angle: x → y, y → -x, and θ → θ + π/2
        images = _flipped(images.transpose(2, 3), torch)
        failed = torch.flip(failed.transpose(1, 2), dims=[1])
        failed = torch.roll(failed, grid.angles // 2, dims=3)
    if flip:  # x → -x, and θ → π - θ
        images = _flipped(images, torch)
        failed = torch.flip(failed, dims=[1])
        failed = torch.roll(torch.flip(failed, dims=[3]), 1, dims=3)
    return images, failed.reshape(len(images), -1)


def _flipped(images: Any, torch: Any) -> Any:
    """Mirrored along the columns, about the pixel of the middle: the one after half of them."""
    return torch.roll(torch.flip(images, dims=[3]), 1, dims=3)
