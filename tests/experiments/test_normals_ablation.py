"""What a row of the ablation of the normal network sees, and the program itself."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from experiments import normals_ablation
from experiments.normals_ablation import PARTS, Options, masked

from veckm.data import shapes
from veckm.tasks.normals.network import gather_inputs
from veckm.tasks.normals.pyramid import make_pyramid


def test_a_row_sees_only_what_it_is_made_of() -> None:
    pyramid = make_pyramid(shapes.box(2000).pos)
    rows = torch.arange(0, 2000, 7)
    planes, encodings, both = (gather_inputs(masked(pyramid, p), rows, None) for p in PARTS)
    assert torch.equal(planes.edge, both.edge)
    assert torch.equal(planes.offset, both.offset)
    # All peaks of no encoding are the same vector; those of the encodings are as they were.
    assert bool((planes.own[:, 3:] == planes.own[:, 3:4]).all())
    assert torch.equal(encodings.own[:, 3:], both.own[:, 3:])
    assert not encodings.offset.any()
    assert torch.equal(encodings.own[:, :3], both.own[:, -1:].expand(-1, 3, -1))


def test_the_program_trains_all_rows_and_compares_them(tmp_path: Path) -> None:
    corners = "0 0 0\n1 0 0\n0 1 0\n0 0 1\n"
    faces = "3 0 2 1\n3 0 1 3\n3 0 3 2\n3 1 2 3\n"
    (tmp_path / "tetrahedron.off").write_text(f"OFF\n4 4 0\n{corners}{faces}")
    normals_ablation.main(Options(tmp_path, tmp_path, quick=True, out=tmp_path))
    results = json.loads((tmp_path / "normals_ablation.json").read_text())
    assert {row["method"] for row in results["rows"]} >= set(PARTS)
    assert "Of the mean of PCA with the best k" in normals_ablation.page(results)
