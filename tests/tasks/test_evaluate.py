"""The measures of estimated normals."""

from __future__ import annotations

import pytest
import torch

from veckm.tasks.normals.evaluate import angle_error, rmse


def test_the_angle_does_not_see_the_sign_and_keeps_small_angles() -> None:
    angle = torch.tensor([0.0, 1e-7, 30.0, 90.0, 150.0, 180.0], dtype=torch.float64).deg2rad()
    n = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64).expand(6, 3)
    m = torch.stack((angle.cos(), angle.sin(), torch.zeros_like(angle)), dim=-1)
    expected = torch.tensor([0.0, 1e-7, 30.0, 90.0, 30.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(angle_error(n, m), expected, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(angle_error(5 * n, -m), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("bad", [0.0, float("nan"), float("inf")])
def test_a_normal_that_is_none_is_an_error_and_not_a_perfect_score(bad: float) -> None:
    n = torch.eye(3)
    with pytest.raises(ValueError, match="second normals have rows that are zero, NaN or infinite"):
        angle_error(n, torch.cat((n[:2], torch.full((1, 3), bad))))
    with pytest.raises(ValueError, match="expected two tensors"):
        angle_error(n, n[:2])


def test_the_rmse_is_the_root_of_the_mean_square() -> None:
    errors = torch.tensor([3.0, 4.0, 12.0, 84.0])
    assert rmse(errors) == pytest.approx(((9 + 16 + 144 + 84**2) / 4) ** 0.5)
    with pytest.raises(ValueError, match="no point was evaluated"):
        rmse(errors[:0])
