import json

import numpy as np
import pytest
import torch

from cnn_numba.nn.layers import Flatten, Linear
from cnn_numba.nn.models import Sequential
from cnn_numba.train.optim import OPTIMIZERS, SCHEDULES, SGD, Adam, Optimizer, cosine, one_cycle


@pytest.fixture
def model():
    return Sequential([Flatten(), Linear(6, 4)], (1, 2, 3), batch_size=2)


@pytest.mark.parametrize(
    ("ours", "theirs", "options"),
    [
        (SGD, torch.optim.SGD, dict(lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True)),
        (SGD, torch.optim.SGD, dict(lr=0.1)),
        (Adam, torch.optim.Adam, dict(lr=0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1)),
        (Adam, torch.optim.Adam, dict(lr=0.01)),
    ],
)
def test_steps_equal_pytorch(model, rng, ours, theirs, options):
    leaf = torch.nn.Parameter(torch.from_numpy(model.parameters.copy()))
    ours, theirs = ours(model, **options), theirs([leaf], **options)
    for step in range(10):
        model.gradients[:] = rng.standard_normal(model.gradients.size)
        leaf.grad = torch.from_numpy(model.gradients.copy())
        lr = options["lr"] / (step + 1)
        theirs.param_groups[0]["lr"] = lr
        ours.step(lr)
        theirs.step()
        np.testing.assert_allclose(model.parameters, leaf.detach().numpy(), rtol=1e-5, atol=1e-6)
    ours.step()
    theirs.param_groups[0]["lr"] = options["lr"]
    theirs.step()
    np.testing.assert_allclose(model.parameters, leaf.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_an_optimizer_may_have_only_its_own_step(model):
    class Signs(Optimizer):
        def step(self, lr=None):
            self.parameters[:] = -self.lr

    signs = Signs(model, 0.5)
    signs.step()
    assert (model.parameters == -0.5).all()
    assert signs.state == {}
    for call in (Optimizer(model, 0.1).step, lambda: signs.rates([0.1])):
        with pytest.raises(NotImplementedError, match=r"^(Optimizer has no update|Signs has no rates): use"):
            call()


@pytest.mark.parametrize(
    ("kind", "lr", "smaller", "unlearned"),
    [
        (Adam, 1e6, "0.001", "smaller"),
        (Adam, 3e-3, "0.0003", "smaller"),
        (SGD, 1e6, "0.01", "smaller"),
        (SGD, 0.01, "0.001", "smaller"),
        (Optimizer, 5, "0.01", "smaller"),
        (Adam, 1e-6, "1e-07", "larger"),
    ],
)
def test_the_advised_rate_depends_on_the_default(model, kind, lr, smaller, unlearned):
    optimizer = kind(model, lr)
    advice = f"try a smaller learning rate than {lr:g}, such as {smaller}"
    assert optimizer.advice(diverged=True) == advice
    larger = f"try a larger learning rate than {lr:g}, such as 0.001"
    assert optimizer.advice(diverged=False) == (larger if unlearned == "larger" else advice)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_saved_state_continues_with_the_same_numbers(name, rng, model):
    gradients = rng.standard_normal((6, model.gradients.size)).astype(np.float32)
    options = {"momentum": 0.9} if name == "sgd" else {}
    first = OPTIMIZERS[name](model, lr=0.1, **options)
    for gradient in gradients[:3]:
        model.gradients[:] = gradient
        first.step()
    kept = {key: array.copy() for key, array in first.state.items()}
    parameters = model.parameters.copy()
    for gradient in gradients[3:]:
        model.gradients[:] = gradient
        first.step()
    expected = model.parameters.copy()

    second = OPTIMIZERS[name](model, lr=0.1, **options)
    second.load_state(kept)
    model.parameters[:] = parameters
    for gradient in gradients[3:]:
        model.gradients[:] = gradient
        second.step()
    np.testing.assert_array_equal(model.parameters, expected)


def test_foreign_state_is_rejected(model):
    with pytest.raises(ValueError, match=r"not of Adam, .* it has velocity .* Adam keeps exp_avg"):
        Adam(model).load_state(SGD(model).state)
    short = {name: array[..., :1] if array.ndim else array for name, array in Adam(model).state.items()}
    with pytest.raises(ValueError, match="another model"):
        Adam(model).load_state(short)


@pytest.mark.parametrize("lr", [0, -1.0, float("nan"), float("inf")])
def test_learning_rates_that_cannot_work_are_rejected(model, lr):
    with pytest.raises(ValueError, match="lr must be"):
        Adam(model, lr=lr)


@pytest.mark.parametrize(
    ("optimizer", "options", "error", "match"),
    [
        (Adam, dict(lr="0.1"), TypeError, "lr must be a number, got '0.1'"),
        (Adam, dict(betas=(0.9, 1.0)), ValueError, "betas must be at least 0 and below 1, got 1.0"),
        (Adam, dict(betas=(-1, 0.9)), ValueError, "betas .* got -1"),
        (Adam, dict(eps=-1e-8), ValueError, "eps .* got -1e-08"),
        (Adam, dict(weight_decay=-0.1), ValueError, r"weight_decay .* got -0\.1"),
        (SGD, dict(momentum=-0.9), ValueError, r"momentum .* got -0\.9"),
        (SGD, dict(weight_decay=float("nan")), ValueError, "weight_decay .* got nan"),
        (SGD, dict(nesterov=True), ValueError, r"nesterov needs momentum, got momentum 0\.0"),
    ],
)
def test_settings_that_cannot_work_are_rejected(model, optimizer, options, error, match):
    with pytest.raises(error, match=match):
        optimizer(model, **options)


@pytest.mark.parametrize("lr", [-1.0, "fast", float("nan")])
def test_a_step_that_raises_does_not_count(model, lr):
    optimizer = Adam(model)
    with pytest.raises((TypeError, ValueError)):
        optimizer.step(lr)
    assert optimizer.state["step"] == 0


def test_an_optimizer_is_shown_with_its_settings(model):
    settings = "lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0"
    assert repr(Adam(model)) == f"<Adam: {settings}; 28 parameters>"
    assert repr(SGD(model, 0.5)) == (
        "<SGD: lr=0.5, momentum=0.0, weight_decay=0.0, nesterov=False; 28 parameters>"
    )


def test_settings_of_numpy_are_kept_as_plain_numbers(model):
    optimizer = SGD(model, lr=np.float32(0.5), momentum=np.float64(0.5))
    assert json.loads(json.dumps([optimizer.lr, optimizer.settings])) == [
        0.5,
        {"momentum": 0.5, "weight_decay": 0.0, "nesterov": False},
    ]


def test_one_cycle_without_a_climb():
    assert one_cycle(1.0, 0, 10, warm_up=0.1) == 1.0


@pytest.mark.parametrize("steps", [3, 11, 100, 2814])
def test_schedules_equal_pytorch(steps):
    optimizers = [torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3e-3) for _ in range(2)]
    theirs = {
        one_cycle: torch.optim.lr_scheduler.OneCycleLR(
            optimizers[0], max_lr=3e-3, total_steps=steps, cycle_momentum=False
        ),
        cosine: torch.optim.lr_scheduler.CosineAnnealingLR(optimizers[1], T_max=steps - 1),
    }
    for step in range(steps):
        for schedule, scheduler in theirs.items():
            expected = scheduler.get_last_lr()[0]
            assert schedule(3e-3, step, steps) == pytest.approx(expected, rel=1e-9, abs=1e-15)
            if step < steps - 1:
                scheduler.optimizer.step()
                scheduler.step()


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("steps", [1, 2, 3, 50])
def test_schedules_stay_between_zero_and_the_peak(name, steps):
    rates = [SCHEDULES[name](0.5, step, steps) for step in range(steps)]
    assert all(0 <= rate <= 0.5 for rate in rates)
    assert max(rates) > 0
