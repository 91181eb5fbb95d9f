"""VGG16 as an extractor: from a colour image to the outputs of its last convolutions.

Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", 2015,
configuration D: thirteen convolutions of 3×3 with five poolings between. The paper on grasping used
it "pretrained on ImageNet and truncated to output a feature representation of size 7×7×512". The
weights are the user's own file; those of torchvision and of timm have the right names.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pacbayes_control.robots.grasping.extractors import FileExtractor
from pacbayes_control.robots.grasping.extras import needed
from pacbayes_control.robots.grasping.weights import Tensors

SIDE = 224  # pixels, of the images that the network was trained on
MEAN = (0.485, 0.456, 0.406)  # of ImageNet's red, green and blue in [0, 1]
DEVIATION = (0.229, 0.224, 0.225)

# Configuration D: the channels after each convolution, block by block; a pooling ends a block.
BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


@dataclass(frozen=True)
class Vgg16(FileExtractor):
    """VGG16 up to its last pooling, frozen, with weights from a file.

    Features are in the order (512, 7, 7): channel, row, column.
    """

    weights: Path  # .safetensors, or a state dict in .pt, .pth or .bin

    name = "vgg16"
    size = 7 * 7 * 512
    right_file = "the weights of VGG16 without batch normalisation, named as in torchvision"
    seen = ()  # no environment of a task went into the weights

    def build(self) -> Any:
        """The network in torch, with its layers named as in the file."""
        torch = needed("torch", "the extractor vgg16")
        nn = torch.nn

        class Prepare(nn.Module):
            """Resizes images and scales their colours as ImageNet's were."""

            def forward(self, images: Any) -> Any:
                images = nn.functional.interpolate(
                    images, size=(SIDE, SIDE), mode="bilinear", align_corners=False
                )
                mean, deviation = (torch.tensor(c).view(3, 1, 1) for c in (MEAN, DEVIATION))
                return (images - mean) / deviation

        layers, before = [], 3
        for block in BLOCKS:
            for channels in block:
                layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU()]
                before = channels
            layers.append(nn.MaxPool2d(2))
        return nn.Sequential(OrderedDict(prepare=Prepare(), features=nn.Sequential(*layers)))

    def digest_parts(self, network: Tensors) -> list[tuple[str, NDArray]]:
        """The network's tensors in the order of the digest, each with a word before it."""
        return [(f"{name} {tensor.shape}", tensor) for name, tensor in network.items()]
