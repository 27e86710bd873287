"""Small datasets in the file formats of the true releases."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from veckm.data.pcpnet import _LISTS, _PREFIX, Split
from veckm.data.protocol import LabeledCloud
from veckm.data.samples import Sample, Samples, generator_of

NAMES = ("chair", "night_stand")
BOX = """OFF
8 6 0
0 0 0
1 0 0
1 1 0
0 1 0
0 0 {z}
1 0 {z}
1 1 {z}
0 1 {z}
4 0 3 2 1
4 4 5 6 7
4 0 1 5 4
4 1 2 6 5
4 2 3 7 6
4 3 0 4 7
"""


def cloud(seed: int, n: int = 20) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3))


def normals(seed: int, n: int = 20) -> np.ndarray:
    x = cloud(seed + 1000, n)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def meshes(folder: Path, count: int = 3) -> Path:
    for height, name in enumerate(NAMES, 1):
        for split in ("train", "test"):
            (folder / name / split).mkdir(parents=True)
            for k in range(count):
                path = folder / name / split / f"{name}_{k:04d}.off"
                path.write_text(BOX.format(z=height + 0.1 * k))
    return folder


def text(folder: Path, n: int = 20) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "modelnet40_shape_names.txt").write_text("".join(f"{name}\n" for name in NAMES))
    for number, split in enumerate(("train", "test")):
        listed = []
        for name in NAMES:
            (folder / name).mkdir(exist_ok=True)
            for k in range(2):
                stem = f"{name}_{2 * number + k + 1:04d}"
                table = np.hstack([5 + cloud(k, n), normals(k, n)])
                np.savetxt(folder / name / f"{stem}.txt", table, fmt="%.6f", delimiter=",")
                listed.append(stem)
        (folder / f"modelnet40_{split}.txt").write_text("\n".join(listed) + "\n")
    return folder


def modelnet_arrays(
    folder: Path, count: int = 8, n: int = 20, names: tuple[str, ...] = NAMES
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shape_names.txt").write_text("".join(f"{name}\n" for name in names))
    for seed, split in enumerate(("train", "test")):
        label = np.arange(count, dtype=np.uint8) % len(names)
        xyz = np.stack([cloud(100 * seed + k, n) for k in range(count)])
        xyz[label == 1, :, 2] *= 0.1  # what there is to be learned
        xyz /= np.linalg.norm(xyz, axis=-1).max(1)[:, None, None]
        stems = np.array([f"{names[c]}_{k:04d}" for k, c in enumerate(label)])
        np.savez(folder / f"{n}_{split}.npz", xyz=xyz.astype(np.float16), label=label, name=stems)
    return folder


def shapenet_text(folder: Path, n: int = 24) -> Path:
    (folder / "train_test_split").mkdir(parents=True)
    (folder / "synsetoffset2category.txt").write_text("Cap\t02954340\nChair\t03001627\n")
    first = {"02954340": (6, 2), "03001627": (12, 4)}
    for split, count in (("train", 3), ("val", 1), ("test", 2)):
        listed = []
        for synset, (begin, parts) in first.items():
            (folder / synset).mkdir(exist_ok=True)
            for k in range(count):
                label = begin + np.arange(n) % parts
                table = np.hstack([cloud(k, n), normals(k, n), label[:, None]])
                np.savetxt(folder / synset / f"{split}{k}.txt", table, fmt="%.6f")
                listed.append(f"shape_data/{synset}/{split}{k}")
        path = folder / "train_test_split" / f"shuffled_{split}_file_list.json"
        path.write_text(json.dumps(listed))
    return folder


def shapenet_arrays(folder: Path, n: int = 24) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "synsetoffset2category.txt").write_text("Cap\t02954340\nChair\t03001627\n")
    split = np.array(["train"] * 5 + ["val"] + ["test"] * 2)
    for synset, name, first, parts in (("02954340", "Cap", 6, 2), ("03001627", "Chair", 12, 4)):
        xyz = np.stack([cloud(k, n) for k in range(len(split))]).astype(np.float16)
        part = np.tile(first + np.arange(n) % parts, (len(split), 1)).astype(np.uint8)
        ids = np.array([f"{name}{k}" for k in range(len(split))])
        np.savez(folder / f"{synset}_{name}.npz", xyz=xyz, part=part, split=split, id=ids)
    return folder


def room(seed: int, n: int = 300) -> np.ndarray:  # (N, 7)
    """A floor, a wall and things, two meters by one and a half."""
    rng = np.random.default_rng(seed)
    xyz = rng.uniform(0, 1, (n, 3)) * [2.0, 1.5, 1.0]
    kind = np.arange(n) % 3
    xyz[kind == 0, 2] = 0
    xyz[kind == 1, 0] = 0
    label = np.array([1, 2, 12])[kind]
    return np.hstack([xyz + 10, rng.integers(0, 256, (n, 3)), label[:, None]])


def s3dis_raw(folder: Path) -> Path:
    names = {1: "floor", 2: "wall", 12: "stairs"}  # stairs are clutter
    for area in (1, 5):
        for number in (1, 2):
            notes = folder / f"Area_{area}" / f"office_{number}" / "Annotations"
            notes.mkdir(parents=True)
            table = room(area + number)
            for label, name in names.items():
                rows = table[table[:, 6] == label, :6]
                np.savetxt(notes / f"{name}_1.txt", rows, fmt="%.3f %.3f %.3f %d %d %d")
            (notes / ".DS_Store").write_bytes(b"\0")
    return folder


def s3dis_prepared(folder: Path, n: int = 300) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for area in (1, 2, 5):
        np.save(folder / f"Area_{area}_office_1.npy", room(area, n))
    table = room(9, n)
    np.savez(
        folder / "made_Area_5_hall_1.npz",
        xyz=table[:, :3].astype(np.float32),
        rgb=table[:, 3:6].astype(np.uint8),
        label=table[:, 6].astype(np.uint8),
    )
    return folder


@dataclass(frozen=True)
class TinyConfig:
    num_classes: int
    in_channels: int = 0


class Tiny(torch.nn.Module):
    """A network with the signature of the true ones, without batch norm; it returns the logits."""

    name = "tiny"

    def __init__(
        self, classes: int, per_point: bool, in_channels: int = 0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        g = generator_of(0, "tiny")
        wide = 3 + in_channels
        self.inner = torch.nn.Parameter(torch.randn(wide, 16, generator=g) / 2)
        self.outer = torch.nn.Parameter(torch.randn(32, classes, generator=g) / 4)
        self.dropout = torch.nn.Dropout(dropout)
        self.per_point, self.in_channels = per_point, in_channels
        self.config = TinyConfig(classes, in_channels)

    def forward(self, pos, x=None, batch=None, *, category=None):  # type: ignore[no-untyped-def]
        h = torch.nn.functional.gelu((pos if x is None else torch.cat((pos, x), -1)) @ self.inner)
        pooled = torch.cat((h.mean(1), h.amax(1)), -1)  # (B, 32)
        if self.per_point:
            pooled = torch.cat((h, h.mean(1, keepdim=True).expand_as(h)), -1)
        return self.dropout(pooled) @ self.outer


def stored(count: int = 10, n: int = 12) -> Samples:
    """Two classes of clouds that differ in their height."""
    pos = torch.randn(count, n, 3, generator=generator_of(0, "stored"))
    label = torch.arange(count) % 2
    pos[label == 1, :, 2] *= 0.1
    samples = [Sample(f"cloud {k}", pos[k], label[k]) for k in range(count)]
    return Samples(samples, NAMES, "made")


def write_pcpnet(folder: Path, cloud: LabeledCloud, split: Split = "test") -> str:
    """Save a cloud in the format of the PCPNet release; returns the name that it is listed by."""
    folder.mkdir(parents=True, exist_ok=True)
    name = cloud.name if cloud.set == "none" else f"{cloud.name}_{cloud.set}"
    np.savetxt(folder / f"{name}.xyz", cloud.pos.numpy(), fmt="%.9g")
    np.savetxt(folder / f"{name}.normals", cloud.normal.numpy(), fmt="%.9g")
    np.savetxt(folder / f"{name}.pidx", cloud.subset.numpy(), fmt="%d")
    if cloud.curvature is not None:
        np.savetxt(folder / f"{name}.curv", cloud.curvature.numpy(), fmt="%.9g")
    with (folder / f"{_PREFIX[split]}_{_LISTS[cloud.set]}.txt").open("a") as file:
        file.write(f"{name}\n")
    return name
