"""The PyTorch Geometric transform; skipped where that is not installed."""

from __future__ import annotations

import importlib
import pickle
import sys
import warnings

import pytest
import torch

from veckm import VecKM
from veckm.data.samples import generator_of

OPTIONS = {"alpha": 10.0, "beta": 4.0, "seed": 3}


@pytest.fixture
def pyg():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
        import torch_geometric.data
        import torch_geometric.transforms
    return torch_geometric


@pytest.fixture
def pos() -> torch.Tensor:
    return torch.rand(30, 3, generator=generator_of(0))


def test_without_pytorch_geometric_the_extra_is_named(monkeypatch) -> None:
    for name in ("torch_geometric", "torch_geometric.data", "torch_geometric.transforms"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "veckm.data.pyg", raising=False)
    with pytest.raises(ImportError, match=r"veckm\[pyg\]"):
        importlib.import_module("veckm.data.pyg")


def test_encodings_come_behind_the_features(pyg, pos: torch.Tensor) -> None:
    from veckm.data.pyg import AddVecKM

    transform = AddVecKM(16, **OPTIONS)
    assert isinstance(transform, pyg.transforms.BaseTransform)
    encoded = VecKM(16, **OPTIONS)(pos)
    expected = torch.cat((encoded.real, encoded.imag), -1)
    assert torch.equal(transform(pyg.data.Data(pos=pos)).x, expected)
    x = torch.ones(30, 2)
    data = pyg.data.Data(pos=pos, x=x)
    both = transform(data)
    assert torch.equal(both.x, torch.cat((x, expected), -1))
    assert torch.equal(data.x, x)  # a transform leaves what it is given
    kept = AddVecKM(16, attr="veckm", **OPTIONS)(data)
    assert torch.equal(kept.veckm, encoded)
    assert torch.equal(kept.x, x)
    number = pyg.data.Data(pos=pos, x=torch.ones(30, dtype=torch.int64))  # one feature, not real
    assert torch.equal(transform(number).x, torch.cat((x[:, :1], expected), -1))


def test_clouds_of_a_batch_are_encoded_apart(pyg, pos: torch.Tensor) -> None:
    from veckm.data.pyg import AddVecKM

    transform = AddVecKM(16, engine="dense", **OPTIONS)
    clouds = [pyg.data.Data(pos=pos[:12]), pyg.data.Data(pos=pos[12:])]
    joint = transform(pyg.data.Batch.from_data_list(clouds))
    apart = torch.cat([transform(cloud).x for cloud in clouds])
    torch.testing.assert_close(joint.x, apart, rtol=1e-4, atol=1e-4)


def test_it_goes_into_a_chain_and_to_workers(pyg, pos: torch.Tensor) -> None:
    from veckm.data.pyg import AddVecKM

    transform = AddVecKM(8, **OPTIONS)
    again = pickle.loads(pickle.dumps(transform))
    data = pyg.data.Data(pos=pos)
    assert torch.equal(again(data).x, transform(data).x)
    assert "AddVecKM(" in repr(transform)
    with pytest.raises(ValueError, match="has no pos"):
        transform(pyg.data.Data(x=pos))
