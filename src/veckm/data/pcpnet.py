"""The PCPNet shapes as released: text files of points, normals and curvatures, and lists of names.

Of every shape ``NAME.xyz``, ``NAME.normals``, ``NAME.curv`` (the principal curvatures, optional)
and ``NAME.pidx`` (the indices of the evaluated points), and of every set a list of names such as
``testset_low_noise.txt``, beside them or in a folder ``list``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from veckm.data.protocol import LabeledCloud
from veckm.data.reading import check_files, read_table

#: Where the release is.
PAGE = "https://geometry.cs.ucl.ac.uk/projects/2018/pcpnet/"

Split = Literal["train", "val", "test"]

_PREFIX = {"train": "trainingset", "val": "validationset", "test": "testset"}
_LISTS = {
    "none": "no_noise",
    "low": "low_noise",
    "med": "med_noise",
    "high": "high_noise",
    "stripe": "vardensity_striped",
    "gradient": "vardensity_gradient",
}
#: Columns of the files of a shape.
_COLUMNS = {".xyz": 3, ".normals": 3, ".curv": 2, ".pidx": 1}


class PCPNet(Sequence[LabeledCloud]):
    """The clouds of a split, each once, read when they are asked for.

    >>> PCPNet("pclouds")[0].pos.shape  # doctest: +SKIP
    torch.Size([100000, 3])

    Args:
        folder: has the files of the release, unpacked.
        split: ``"train"``, ``"val"`` or ``"test"``.

    Attributes:
        entries: set and name of every cloud; the set is one of ``protocol.SETS``, or what the
            name of a list has behind the split, such as ``"whitenoise"``.
    """

    def __init__(self, folder: str | Path, split: Split = "test") -> None:
        if split not in _PREFIX:
            raise ValueError(f"split must be one of {', '.join(_PREFIX)}, got {split!r}")
        self.folder = Path(folder)
        owner: dict[str, str] = {}
        for key, path in _find_lists(self.folder, split).items():
            for name in path.read_text().split():
                owner.setdefault(name, key)
        if not owner:
            raise FileNotFoundError(
                f"{folder}: has no {_PREFIX[split]}_*.txt; unpack pclouds.zip from {PAGE} and name "
                "its folder"
            )
        self.entries = [(key, name) for name, key in owner.items()]
        needed = (".xyz", ".normals", ".pidx") if split == "test" else (".xyz", ".normals")
        check_files([self.folder / f"{n}{end}" for n in owner for end in needed], PAGE)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: int) -> LabeledCloud:  # type: ignore[override]  # no slices
        set, name = self.entries[index]
        tables: dict[str, Tensor] = {}
        for end, columns in _COLUMNS.items():
            path = self.folder / f"{name}{end}"
            if not path.is_file():
                continue
            rows = tables[end] = torch.from_numpy(read_table(path, columns))
            points = len(tables[".xyz"])
            if end == ".pidx" and not 0 <= rows.min() <= rows.max() < points:
                raise ValueError(f"{path}: has indices outside of the {points} points of the shape")
            if end != ".pidx" and len(rows) != points:
                raise ValueError(
                    f"{path}: has {len(rows)} rows for the {points} points of the shape"
                )
        subset = tables[".pidx"].squeeze(1).long() if ".pidx" in tables else torch.arange(points)
        curvature = tables.get(".curv")
        return LabeledCloud(
            name,
            set,
            tables[".xyz"].float(),
            torch.nn.functional.normalize(tables[".normals"], dim=-1).float(),  # text is rounded
            subset,
            # The release does not define which is the larger; here the first is.
            None if curvature is None else curvature.sort(dim=-1, descending=True).values.float(),
        )


def _find_lists(folder: Path, split: Split) -> dict[str, Path]:
    """The list files of a split by the name of their set, the known sets first."""
    prefix = _PREFIX[split] + "_"
    found: dict[str, Path] = {}
    for path in sorted([*folder.glob(f"{prefix}*.txt"), *folder.glob(f"list/{prefix}*.txt")]):
        found.setdefault(path.stem.removeprefix(prefix), path)
    known = {key: found.pop(suffix) for key, suffix in _LISTS.items() if suffix in found}
    # A test list besides the six is a union of them.
    return known if split == "test" else known | found
