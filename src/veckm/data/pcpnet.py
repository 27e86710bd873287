"""The PCPNet shapes as released: text files of points, normals and curvatures, and lists of names.

Of every shape ``NAME.xyz``, ``NAME.normals``, ``NAME.curv`` (the principal curvatures, optional)
and ``NAME.pidx`` (the numbers of the evaluated points), and of every set a list of names such as
``testset_low_noise.txt``, beside them or in a folder ``list``.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, overload

import numpy as np
import torch
from torch import Tensor

from veckm.data.protocol import SETS, LabeledCloud
from veckm.data.sampling import Shape
from veckm.io.atomic import writing

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


class PCPNet(Sequence[LabeledCloud]):
    """The clouds of a split, read when they are asked for.

    >>> clouds = PCPNet("pclouds", split="test", set="low")  # doctest: +SKIP
    >>> clouds[0].pos.shape  # doctest: +SKIP
    torch.Size([100000, 3])

    Args:
        folder: has the files of the release, unpacked.
        split: ``"train"``, ``"val"`` or ``"test"``.
        set: one of the sets that the split has a list of: those of ``protocol.SETS`` for the test
            shapes; else what follows the first word of the list's name, such as ``"whitenoise"``,
            the one that networks are trained on by custom. None for all that are there, each cloud
            once.
        cache: a folder to keep what was parsed in, as ``.npy``, for text is slow to read; the
            folder of the release itself will do. None to parse every time.

    Attributes:
        entries: set and name of every cloud.
    """

    def __init__(
        self,
        folder: str | Path,
        split: Split = "test",
        set: str | None = None,
        cache: str | Path | None = None,
    ) -> None:
        if split not in _PREFIX:
            raise ValueError(f"split must be one of {', '.join(_PREFIX)}, got {split!r}")
        self.folder, self.split = Path(folder), split
        self.cache = None if cache is None else Path(cache)
        lists = _find_lists(self.folder, split)
        if not lists or (set is not None and set not in lists):
            raise FileNotFoundError(_missing_list(self.folder, split, set, list(lists)))
        chosen = lists if set is None else {set: lists[set]}
        owner: dict[str, str] = {}
        for key, path in chosen.items():
            for name in path.read_text().split():
                owner.setdefault(name, key)
        self.entries = [(key, name) for name, key in owner.items()]
        needed = (".xyz", ".normals", ".pidx") if split == "test" else (".xyz", ".normals")
        self._check_files(needed)

    def _check_files(self, endings: Sequence[str]) -> None:
        """Find now what would be missing in the middle of a run."""
        names = [name + ending for _, name in self.entries for ending in endings]
        missing = [name for name in names if not (self.folder / name).is_file()]
        if missing:
            raise FileNotFoundError(
                f"{self.folder}: {len(missing)} of {len(names)} files of the {self.split} lists "
                f"are not there, the first is {missing[0]}; get pclouds.zip from {PAGE}"
            )

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, index: int) -> LabeledCloud: ...

    @overload
    def __getitem__(self, index: slice) -> list[LabeledCloud]: ...

    def __getitem__(self, index: int | slice) -> LabeledCloud | list[LabeledCloud]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._read(*self.entries[index])

    def _read(self, set: str, name: str) -> LabeledCloud:
        pos, normal = self._table(name + ".xyz", 3), self._table(name + ".normals", 3)
        curvature = None
        if (self.folder / f"{name}.curv").is_file():
            curvature = self._table(name + ".curv", 2)
        subset = torch.arange(len(pos))
        if (self.folder / f"{name}.pidx").is_file():
            subset = self._table(name + ".pidx", 1).squeeze(1).long()
        path = self.folder / f"{name}.xyz"
        _check_rows(path, pos, normal, curvature, subset)
        return LabeledCloud(
            name,
            set,
            pos.float(),
            _unit(normal),
            subset,
            # The release does not say which is the larger; here the first is.
            None if curvature is None else curvature.sort(dim=-1, descending=True).values.float(),
        )

    def _table(self, file: str, columns: int) -> Tensor:  # (N, columns) float64
        """The numbers of a text file, from the cache if it is newer than the text."""
        path = self.folder / file
        if self.cache is None:
            return _parse(path, columns)
        kept = self.cache / f"{file}.npy"
        if kept.is_file() and kept.stat().st_mtime_ns >= path.stat().st_mtime_ns:
            try:
                return torch.from_numpy(np.load(kept, allow_pickle=False)).reshape(-1, columns)
            except (ValueError, EOFError, RuntimeError):
                pass  # half a file of an interrupted run: parse again
        table = _parse(path, columns)
        _keep(kept, table.numpy())
        return table


def _find_lists(folder: Path, split: Split) -> dict[str, Path]:
    """The list files of a split by the name of their set, the known sets first."""
    prefix = _PREFIX[split] + "_"
    found: dict[str, Path] = {}
    for path in sorted([*folder.glob(f"{prefix}*.txt"), *folder.glob(f"list/{prefix}*.txt")]):
        found.setdefault(path.stem.removeprefix(prefix), path)
    known = {key: found.pop(suffix) for key, suffix in _LISTS.items() if suffix in found}
    # A test list besides the six is a union of them.
    return known if split == "test" else known | found


def _missing_list(folder: Path, split: Split, set: str | None, there: list[str]) -> str:
    if not folder.is_dir():
        return f"{folder}: is not a folder; unpack pclouds.zip from {PAGE} and name its folder"
    if set is not None and there:
        return f"{folder}: has no {split} list of the set {set!r}; it has {', '.join(there)}"
    return f"{folder}: has no {_PREFIX[split]}_*.txt; get pclouds.zip from {PAGE}"


def _parse(path: Path, columns: int) -> Tensor:  # (N, columns) float64
    """The numbers of a text file, checked to be a table of that many columns."""
    try:
        numbers = np.array(path.read_bytes().split(), dtype=np.float64)
        table = numbers.reshape(-1, columns)
    except ValueError as error:
        raise ValueError(
            f"{path}: is not a table of numbers with {columns} columns: {error}"
        ) from error
    if not len(table) or not np.isfinite(table).all():
        raise ValueError(f"{path}: is empty, or has NaN or infinite values")
    return torch.from_numpy(table)


def _check_rows(
    path: Path, pos: Tensor, normal: Tensor, curvature: Tensor | None, subset: Tensor
) -> None:
    for ending, table in ((".normals", normal), (".curv", curvature)):
        if table is not None and len(table) != len(pos):
            file = path.with_name(path.stem + ending)
            raise ValueError(f"{file}: has {len(table)} rows for the {len(pos)} points of {path}")
    if not 0 <= int(subset.min()) <= int(subset.max()) < len(pos):
        file = path.with_name(path.stem + ".pidx")
        raise ValueError(f"{file}: names points that {path} with its {len(pos)} does not have")


def _unit(normal: Tensor) -> Tensor:
    """Normals of length one, for the text has rounded them; zero stays zero."""
    return torch.nn.functional.normalize(normal.double(), dim=-1).float()


def _keep(path: Path, array: np.ndarray) -> None:
    """Write a .npy file whole or not at all: another process may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        np.save(file, array, allow_pickle=False)


def write_pcpnet(folder: str | Path, cloud: LabeledCloud, split: Split = "test") -> str:
    """Save a cloud in the format of the release and add it to the list of its set.

    Returns the name it is saved under: its own, followed by the set unless that is ``"none"``.
    Nine digits are written, which is all that float32 has.
    """
    if split not in _PREFIX:
        raise ValueError(f"split must be one of {', '.join(_PREFIX)}, got {split!r}")
    if not cloud.name or cloud.name.split() != [cloud.name] or "/" in cloud.name:
        raise ValueError(f"a cloud needs a name without spaces to be saved, got {cloud.name!r}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    plain = cloud.set == "none" or cloud.name.endswith(f"_{cloud.set}")
    name = cloud.name if plain else f"{cloud.name}_{cloud.set}"
    np.savetxt(folder / f"{name}.xyz", cloud.pos.numpy(), fmt="%.9g")
    np.savetxt(folder / f"{name}.normals", cloud.normal.numpy(), fmt="%.9g")
    np.savetxt(folder / f"{name}.pidx", cloud.subset.numpy(), fmt="%d")
    if cloud.curvature is not None:
        np.savetxt(folder / f"{name}.curv", cloud.curvature.numpy(), fmt="%.9g")
    known = _LISTS[cloud.set] if cloud.set in SETS else cloud.set
    path = folder / f"{_PREFIX[split]}_{known}.txt"
    names = path.read_text().split() if path.is_file() else []
    if name not in names:
        path.write_text("".join(f"{line}\n" for line in [*names, name]))
    return name


def read_shape(path: str | Path) -> Shape:
    """Points of a ``.npy`` file, or points and normals of a ``.npz`` with ``xyz`` and ``normal``.

    Shapes:
        - pos: (N, 3) float32, normal: (N, 3) float32 or None
    """
    path = Path(path)
    if path.suffix.lower() not in (".npy", ".npz"):
        raise ValueError(f"{path}: a .npy or a .npz file is wanted here")
    try:
        loaded = np.load(path, allow_pickle=False)
        arrays = {"xyz": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
    if "xyz" not in arrays:
        raise ValueError(f"{path}: has no array xyz, only {', '.join(arrays) or 'nothing'}")
    pos = _points(path, "xyz", arrays["xyz"])
    if "normal" not in arrays:
        return Shape(pos)
    normal = _points(path, "normal", arrays["normal"])
    if len(normal) != len(pos):
        raise ValueError(f"{path}: has {len(normal)} normals for {len(pos)} points")
    return Shape(pos, _unit(normal))


def _points(path: Path, name: str, array: np.ndarray) -> Tensor:  # (N, 3) float32
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind != "f":
        raise ValueError(f"{path}: {name} is {array.dtype} of shape {array.shape}, not (N, 3)")
    if not len(array) or not np.isfinite(array).all():
        raise ValueError(f"{path}: {name} is empty, or has NaN or infinite values")
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
