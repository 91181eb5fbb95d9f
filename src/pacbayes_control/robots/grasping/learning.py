"""Labels of objects, and priors over a network's layers, to learn grasping with.

`pretrain` makes the file of the compact extractor, with a prior over the layers after it, from
labelled objects. The network learns two things at once: which grasps of the grid succeed, through a
layer that is not kept, and a grasp of its own, through the three layers of a policy. Then the
extractor is frozen, and the three layers are trained further with noise in their weights as large
as the prior's: the result is a prior whose draws, and not only its mean, grasp well.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control import __version__
from pacbayes_control.learn.priors import GaussianPrior
from pacbayes_control.learn.search import SearchSettings
from pacbayes_control.robots.grasping import Compact, Grasping, GraspNetwork, Grid, Labels
from pacbayes_control.robots.grasping.extractors import compact_layers
from pacbayes_control.robots.grasping.extras import cache_folder, digest_of, needed
from pacbayes_control.robots.grasping.labels import near_failures
from pacbayes_control.robots.grasping.policy import forward, jet
from pacbayes_control.robots.grasping.weights import write_weights
from pacbayes_control.rollouts import Execution
from pacbayes_control.rollouts.evaluation import table_of
from pacbayes_control.rollouts.jobs import Job
from pacbayes_control.rollouts.pools import open_workers
from pacbayes_control.tasks.environments import Environments, generator

PART = 256  # objects whose labels are kept together

# From a prior that grasps well already, small steps; from the paper's, which knows nothing, large.
SEARCH = {
    "elsewhere": SearchSettings(estimator="gradient", pairs=2, steps=200, step_size=0.01),
    "paper": SearchSettings(estimator="gradient", pairs=2, steps=400, step_size=0.1, patience=400),
}


def labelled(
    task: Grasping, environments: Environments, execution: Execution, grid: Grid | None = None
) -> Grasping:
    """The task with labels for the objects to train on, made once and kept in the cache."""
    kept = replace(execution, store=cache_folder() / "grasping", title="labelling grasps")
    return task.with_labels(label(task, environments, grid or Grid(), kept))


def label(
    task: Grasping, environments: Environments, grid: Grid, execution: Execution | None = None
) -> Labels:
    """Try every grasp of a grid on every object: an evaluation of policies that do not look.

    Labels are kept in the execution's store, those of each kind of task apart and in parts of PART
    objects, so that an interrupted labelling goes on where it was and a larger one takes over whole
    parts.
    """
    execution = execution or Execution()
    blind, columns = task.blind(), len(grid.grasps)
    words = [__version__, repr(blind), repr(grid)]
    kept = None
    if execution.store is not None:
        kept = Path(execution.store) / f"labels-{digest_of(words)[:16]}"
        kept.mkdir(parents=True, exist_ok=True)
    parts = []
    with open_workers(blind, execution) as opened:
        for part in environments.chunks(PART):
            done = (part.start - environments.start) * columns
            counted = opened.counting_on(done, len(environments) * columns)
            name = f"{part.stream}-{part.seed}-{part.start}-{part.stop}"
            here = replace(counted, store=kept / name if kept else None)
            parts.append(np.array(table_of(Job(blind, part, grid.grasps), here), np.uint8))
    return Labels(environments, np.concatenate(parts), grid)


def prior_named(network: GraspNetwork, name: str, seed: int = 0) -> GaussianPrior:
    """A prior over a network's layers: that of the compact extractor's file, or the paper's."""
    if name == "paper":
        return GaussianPrior(network.paper_prior(seed), "the paper's, around random means near 0")
    if not isinstance(network.extractor, Compact):
        raise ValueError(
            f"the prior {name!r} was learnt with the compact extractor: with "
            f"{network.extractor.name}, choose the prior paper (--prior paper)"
        )
    gaussian, origin = network.extractor.prior()
    if len(gaussian) != network.parameters:
        raise ValueError(
            f"the prior {name!r} has {len(gaussian)} parameters and the network "
            f"{network.parameters}: for other layers or another head choose the prior paper "
            "(--prior paper)"
        )
    return GaussianPrior(gaussian, origin)


# ---- pretraining --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Training:
    """Settings of the training."""

    epochs: int = 150  # of the extractor
    head_epochs: int = 40  # of the layers after it, with noise
    batch: int = 128
    step_size: float = 1e-3
    decay: float = 0.2  # of weights
    noise: float = 0.1  # of the prior, relative to the typical weight of each layer


def pretrain(
    labels: Labels,
    file: Path,
    training: Training | None = None,
    seed: int = 0,
    *,
    device: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Train on labelled objects, and write the extractor and the prior to a file.

    The last bits of the weights depend on the device and on the number of its threads.

    Args:
        labels: of the objects to train on.
        file: a .safetensors file to write.
        training: by default `Training()`.
        seed: of the first weights and of the order of the objects.
        device: of PyTorch; by default a GPU where there is one.
        progress: called with the epochs that are done, and their total.
    """
    if labels.grid.angles % 2:
        raise ValueError(
            f"the grid has {labels.grid.angles} angles, and training turns objects by right "
            "angles: give an even number of angles"
        )
    torch = needed("torch", "training a network")
    training = training or Training()
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(seed)
    heights = (part.arrays()["heights"] for part in labels.environments.chunks(256))
    images = torch.as_tensor(np.concatenate([jet(part) for part in heights]), device=device)
    table = torch.as_tensor(labels.failures, device=device)
    extractor = compact_layers(torch).to(device)
    network = GraspNetwork(Compact())  # of which only the shapes of the layers are used
    head = torch.tensor(_first_weights(network, seed), device=device, requires_grad=True)
    grid_layer = torch.nn.Linear(Compact.size, len(labels.grid.grasps)).to(device)
    total, size = training.epochs + training.head_epochs, training.step_size

    def grasp_cost(policy: Any, features: Any, failed: Any) -> Any:
        grasps = network.decoded(forward(network, policy, features))
        return near_failures(failed, labels.grid, *grasps).mean()

    def both(seen: Any, failed: Any) -> Any:
        features = extractor(seen)
        cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
        return grasp_cost(head, features, failed) + cross_entropy(grid_layer(features), 1 - failed)

    def noisy(seen: Any, failed: Any) -> Any:
        return grasp_cost(head + widths * torch.randn_like(head), extractor(seen), failed)

    def descend(loss: Any, optimiser: Any, schedule: Any, epochs: range) -> None:
        for epoch in epochs:
            for rows in torch.randperm(len(images), device=device).split(training.batch):
                optimiser.zero_grad()
                loss(*_transformed(images[rows], table[rows], labels.grid, torch)).backward()
                optimiser.step()
                schedule.step()
            if progress:
                progress(epoch + 1, total)

    batches = -(-len(images) // training.batch)
    everything = [*extractor.parameters(), *grid_layer.parameters(), head]
    optimiser = torch.optim.AdamW(everything, lr=size, weight_decay=training.decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2 * size, training.epochs * batches)
    descend(both, optimiser, schedule, range(training.epochs))
    extractor.eval().requires_grad_(False)
    widths = _widths(network, head.detach(), training.noise, torch)
    optimiser = torch.optim.Adam([head], lr=size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, training.head_epochs * batches)
    descend(noisy, optimiser, schedule, range(training.epochs, total))
    _write(file, extractor, head.detach(), widths, labels.environments)


def _write(file: Path, extractor: Any, mean: Any, widths: Any, seen: Environments) -> None:
    tensors = {
        f"extractor.{name}": tensor.cpu().numpy().astype(np.float16)
        for name, tensor in extractor.state_dict().items()
    }
    tensors["prior.mean"] = mean.cpu().numpy().astype(np.float32)
    tensors["prior.variance"] = (widths**2).cpu().numpy().astype(np.float32)
    words = f"learnt on {len(seen):,} other objects, with its extractor"
    write_weights(file, tensors, {"seen": json.dumps([list(seen.range)]), "origin": words})


def _first_weights(network: GraspNetwork, seed: int) -> NDArray[np.float32]:
    """Weights to begin with, so large that the sigmoids' outputs vary with their inputs."""
    rng = generator(seed, "pretraining", of="policies")
    parts = []
    for inputs, outputs in network.shapes:
        parts += [rng.normal(0, 2 / np.sqrt(inputs), inputs * outputs), np.zeros(outputs)]
    return np.concatenate(parts).astype(np.float32)


def _widths(network: GraspNetwork, head: Any, noise: float, torch: Any) -> Any:
    """The prior's standard deviations: of each layer, relative to its typical weight."""
    parts = []
    for weights, biases in network.layers(head):
        size = noise * weights.pow(2).mean().sqrt()
        parts += [size.expand(weights.numel()), size.expand(biases.numel())]
    return torch.cat(parts)


def _transformed(images: Any, table: Any, grid: Grid, torch: Any) -> tuple[Any, Any]:
    """A batch of objects, turned by right angles and mirrored at random, with their labels.

    Rows of an image run along y and columns along x; tables are Δx × Δy × θ. An image is mirrored
    about the pixel after half of its columns, which is the middle of the object.
    """
    failed = table.reshape(-1, *grid.shape).float()
    turns, flip = int(torch.randint(4, ())), bool(torch.randint(2, ()))
    for _ in range(turns):  # by a right angle: x → y, y → -x, and θ → θ + π/2
        images = images.transpose(2, 3).flip(3).roll(1, 3)
        failed = failed.transpose(1, 2).flip(1).roll(grid.angles // 2, 3)
    if flip:  # x → -x, and θ → π - θ
        images = images.flip(3).roll(1, 3)
        failed = failed.flip(1, 3).roll(1, 3)
    return images, failed.reshape(len(images), -1)
