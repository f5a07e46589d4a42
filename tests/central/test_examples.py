"""What a user's model, data or loss may be: trained within the bound, or refused in one line before the first step."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln
from scipy.stats import poisson
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

from sfumato import models
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central import DPSGD, Counts, CustomLoss, Regression, poisson_loss, squared_error
from sfumato.central.tasks import cross_entropy
from sfumato.data import ExampleDataset, examples_from_arrays, from_arrays, open_examples, write_examples
from sfumato.training import RoundContext
from slow import by_profile, one_in

# What a user's model or data may hold: trained within the bound, or refused in one line before the first step.


# What a user's own model or data may hold: trained where it can be, else refused in one line before the first step.

PLAN = DPSGD(steps=2, cohort=12, server={"learning_rate": 0.5}, noise=0.8, clipping=0.7, seed=3)


def vector(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1).double() for p in model.parameters()])


class Model(nn.Module):
    """Two dense layers on 8×8 pictures, and a step of the test's own between them."""

    def __init__(self, between=lambda x: x, before=lambda x: x) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.first, self.last = nn.Linear(64, 6), nn.Linear(6, 3)
        self._between, self._before = between, before

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self._between(self.first(self._before(x.flatten(1)))))


def half_in_place(x: Tensor) -> Tensor:
    x[:, 0] = 0.0
    return x.mul_(0.5)


def half(x: Tensor) -> Tensor:
    keep = torch.ones_like(x)
    keep[:, 0] = 0.0
    return x * keep * 0.5


PAIR = (np.zeros((40, 64), np.float32), np.arange(40) % 3)
PEOPLE = from_arrays(PAIR[0], users=np.arange(40) % 5, labels=PAIR[1])
FRAME = pd.DataFrame({"x": PAIR[0][:, 0], "y": PAIR[1]})
TORCH = TensorDataset(torch.zeros(40, 64), torch.arange(40) % 3)


@pytest.mark.parametrize("given", [PAIR, list(PAIR), TORCH, DataLoader(TORCH)], ids=lambda given: type(given).__name__)
def test_what_other_libraries_train_on_is_refused_with_the_two_ways_there_are(pictures, given):
    words = rf"must be a data set of sfumato, got {type(given).__name__}; .*examples_from_arrays.*plan\.open"
    with pytest.raises(InputError, match=f"data {words}"):
        PLAN.fit(Model(), given)
    with pytest.raises(InputError, match=f"test {words}"):
        PLAN.fit(Model(), pictures(40), test=given)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [(PEOPLE, "examples_from_"), (FRAME, r"open_examples\(table, ")],
    ids=["people", "table"],
)
def test_people_and_tables_are_no_single_examples(given, remedy):
    told = rf"must be single examples \(ExampleDataset\), got {type(given).__name__}; data\.{remedy}"
    with pytest.raises(InputError, match=told):
        PLAN.fit(Model(), given)


@pytest.mark.parametrize("where", ["between", "before"])
def test_work_in_place_gives_the_result_of_work_on_copies(pictures, where):
    """On what a layer gives, and on the inputs themselves."""
    data = pictures(40)
    in_place, on_copies = (PLAN.fit(Model(**{where: step}), data).model for step in (half_in_place, half))
    torch.testing.assert_close(vector(in_place), vector(on_copies), rtol=1e-6, atol=1e-7)


def test_whole_numbers_train_where_a_layer_takes_them_and_are_refused_where_none_does(pictures):
    classified = np.random.default_rng(0).integers(0, 9, (40, 64))
    data = ExampleDataset(inputs=(classified,), targets=np.arange(40) % 3, num_classes=3)
    with pytest.raises(InputError, match=r"fails on inputs of shape \(64,\) int64 \(.*dtype.*\)"):
        PLAN.fit(Model(), data)
    as_numbers = PLAN.fit(Model(before=lambda x: x.float() / 9), data).model
    given = dataclasses.replace(data, inputs=(classified.astype(np.float32),))
    torch.testing.assert_close(vector(as_numbers), vector(PLAN.fit(Model(before=lambda x: x / 9), given).model))


def broken_derivative(x: Tensor) -> Tensor:
    y = x.sigmoid()
    y.exp().sum()
    z = y * y
    y.add_(1.0)
    return z


def with_weights(value: float) -> nn.Module:
    model = Model()
    nn.init.constant_(model.first.weight, value)
    return model


def with_generator() -> nn.Module:
    model = Model()
    model.numbers = (number for number in range(3))
    return model


def raises(error: Exception):
    def step(_: Tensor) -> Tensor:
        raise error

    return step


class AcrossExamples(nn.Module):
    """Attention of the examples to each other, with weights of its own, as a user may write it by mistake."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.out = nn.Linear(64, 6), nn.Linear(64, 6), nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.out((self.query(x) @ self.key(x).T).softmax(dim=1) @ x)


def lazy() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(3))


def real_of(x: Tensor) -> Tensor:
    return torch.view_as_real(x)[..., 0]


def complex_model() -> nn.Module:
    model = Model(before=lambda x: x.to(torch.complex64), between=real_of)
    with pytest.warns(UserWarning, match="Complex modules"):
        model.first.to(torch.complex64)
    return model


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (AcrossExamples, r"layer 'out': its output for an example changes .* coupled"),
        (lambda: Model(between=broken_derivative), r"inplace operation.*; work on a copy there"),
        (lambda: with_weights(float("nan")), "the loss of the first examples is not finite"),
        (lazy, r"1\.weight has no shape yet"),
        (complex_model, r"parameter first\.weight is torch\.complex64; use real numbers"),
        (with_generator, "cannot be copied .*generator.*; keep generators"),
        (lambda: Model(before=raises(KeyError("colour"))), r"fails on inputs .*KeyError: 'colour'"),
        (lambda: Model(before=raises(AssertionError())), r"fails on inputs .*\(AssertionError\)"),
        (
            lambda: Model(before=raises(ValueError("three\nlines\nhere"))),
            r"fails on inputs .*\(ValueError: three\)",
        ),
        (lambda: Model().requires_grad_(False), "names no parameter to train"),
    ],
    ids=[
        "attention across examples",
        "work in place that breaks the derivative",
        "weights with nan",
        "a lazy layer",
        "complex weights",
        "no copy",
        "a key error",
        "an assertion",
        "several lines",
        "nothing to train",
    ],
)
def test_a_model_that_cannot_be_trained_is_one_line_and_leaves_nothing(pictures, tmp_path, build, named):
    with pytest.raises(InputError, match=named) as told:
        PLAN.fit(build(), pictures(20), out=tmp_path / "run")
    assert "\n" not in str(told.value)
    assert not (tmp_path / "run").exists()


def test_a_part_that_is_cut_off_is_reported(pictures):
    with pytest.warns(UserWarning, match="2 trained parameters have no gradient .*first"):
        PLAN.fit(Model(between=lambda x: x.detach()), pictures(20))


class Lifted(nn.Module):
    """A fixed part without gradients that takes 4 MiB for each example, before a small trained one."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            large = x.flatten(1).repeat(1, 1 << 14)
            fixed = large.view(len(x), 64, -1).mean(dim=2)
        return self.last(fixed)


def test_a_part_without_gradients_counts_in_the_micro_batch(pictures):
    contribution = PLAN.replace(examples={"memory_budget": 64}).contribution(Lifted(), pictures(20), "cpu", 0)
    assert contribution.bytes_per_example >= 4 << 20
    assert contribution.micro_batch <= 16


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"clipping": {"kind": "automatic", "gamma": float("nan")}}, "gamma must be a number, got nan"),
        ({"clipping.shares": (1.0, 2.0)}, "shares is for clipping=per_layer"),
        ({"clipping": "adaptive", "clipping.learning_rate": float("nan")}, "learning_rate must be a number"),
        ({"clipping": "adaptive", "clipping.count_noise": -1.0}, "count_noise must be > 0"),
        ({"clipping": "adaptive", "clipping.adapted_rounds": 0}, "adapted_rounds must be"),
        ({"clipping": "adaptive", "clipping.quantile": 2.0}, r"quantile must be in \[0, 1\]"),
        ({"server.learning_rate": 1e308}, r"learning_rate must be in \[0, 3e\+38\]"),
        ({"server.weight_decay": 1e308}, r"weight_decay must be in \[0, 3e\+38\]"),
    ],
    ids=str,
)
def test_every_number_of_a_plan_is_checked_by_its_own_name(changes, named):
    with pytest.raises(InputError, match=named):
        dataclasses.replace(PLAN, **changes)


# Models with layers of the user's own: trained within the bound, or refused before the first step.

ONE_STEP = DPSGD(steps=2, cohort=4, clipping=0.1, noise=1.0, seed=1)


def classified(count: int, *shape: int, seed: int = 0) -> ExampleDataset:
    rng = np.random.default_rng(seed)
    inputs = rng.normal(0, 1, (count, *shape)).astype(np.float32)
    return ExampleDataset(inputs=(inputs,), targets=rng.integers(0, 3, count), num_classes=3)


class OwnStatistics(nn.BatchNorm1d):
    """Frozen batch norm: it stays in evaluation mode."""

    def train(self, mode: bool = True) -> "OwnStatistics":
        return super().train(False)


RUN_AGAIN = {
    "prelu": lambda: nn.Sequential(nn.Linear(6, 8), nn.PReLU(8), nn.Linear(8, 3)),
    "weight_norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 8)), nn.Linear(8, 3)),
    "transposed": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 3)), nn.ConvTranspose1d(2, 2, 2), nn.Flatten(), nn.Linear(8, 3)
    ),
    "frozen statistics": lambda: nn.Sequential(nn.Linear(6, 8), OwnStatistics(8), nn.Tanh(), nn.Linear(8, 3)),
}


@pytest.mark.parametrize(("precision", "kind"), one_in(2, ["float32", "bfloat16"], RUN_AGAIN))
def test_layers_without_a_rule_train_and_move_the_sum_by_no_more_than_the_clip_norm(kind: str, precision: str) -> None:
    torch.manual_seed(0)
    plan = ONE_STEP.replace(examples={"precision": precision, "micro_batch": 16})
    contribution = plan.contribution(RUN_AGAIN[kind](), classified(16, 6), "cpu", 0)
    source = RandomSource.from_seed(0)
    theta = 2 * contribution.trained.initial

    def total(present: np.ndarray) -> torch.Tensor:
        cohort = plan.cohort.grouping.group(present, 0, source)
        return contribution.clipped_sum(RoundContext(theta, cohort, 0, plan.clipping, 0.1, source)).total

    whole = total(np.arange(16))
    for absent in (0, 7, 15):
        without = total(np.delete(np.arange(16), absent))
        assert 0.01 < float((whole - without).norm()) <= 0.1
    plan.fit(RUN_AGAIN[kind](), classified(16, 6))


class Zeroed(nn.Module):
    """Subtracts the mean of the batch before a last layer that starts at zero: at the start nothing shows."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3)
        nn.init.zeros_(self.two.weight)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        hidden = self.one(values).tanh()
        return self.two(hidden - hidden.mean(dim=0).detach())


def test_coupling_behind_a_layer_of_zeros_is_refused_before_the_first_step() -> None:
    with pytest.raises(InputError, match="coupled"):
        ONE_STEP.fit(Zeroed(), classified(16, 6))


def test_examples_for_the_check_are_looked_for_in_all_of_the_data() -> None:
    """Were the first ones all there is to see, coupling among equal examples would have to be seen."""
    data = classified(200, 6)
    inputs = np.asarray(data.inputs[0]).copy()
    inputs[:100] = inputs[0]
    from sfumato.central.examples import spread

    places = spread(dataclasses.replace(data, inputs=(inputs,)), 8)
    assert len(places) == 8
    assert len(np.unique(inputs[places], axis=0)) == 5


def test_a_frozen_table_cannot_report_which_words_were_seen() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(50, 4, max_norm=0.5).requires_grad_(False)
            self.head = nn.Linear(4, 3)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.table(ids).mean(dim=1))

    ids = np.random.default_rng(0).integers(0, 50, (16, 5))
    data = ExampleDataset(inputs=(ids,), targets=np.arange(16) % 3, num_classes=3)
    with pytest.raises(InputError, match=r"'table'.*max_norm"):
        ONE_STEP.fit(Words(), data)


def test_a_count_of_examples_is_not_released() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)
            self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            self.seen += len(values)
            return self.layer(values)

    with pytest.raises(InputError, match="'seen' changes"):
        ONE_STEP.fit(Counts(), classified(16, 6))


# Inputs with names go into the model's arguments of these names: as models of transformers take them.

NAMED_PLAN = DPSGD(
    steps=3, cohort=12, examples={"micro_batch": 6}, noise=1.0, server={"learning_rate": 0.1, "momentum": 0.0}, seed=3
)


def bert() -> BertForSequenceClassification:
    """A tiny one of random weights."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 30, "hidden_size": 16, "intermediate_size": 24, "max_position_embeddings": 12}
    return BertForSequenceClassification(
        BertConfig(**sizes, num_hidden_layers=1, num_attention_heads=2, num_labels=3, initializer_range=0.2)
    )


def arrays() -> dict[str, np.ndarray]:
    """As a tokeniser gives them: texts of different lengths."""
    rng = np.random.default_rng(0)
    mask = (np.arange(8) < rng.integers(3, 9, (40, 1))).astype(np.int64)
    return {"attention_mask": mask, "input_ids": rng.integers(1, 30, (40, 8)) * mask}


def labels() -> np.ndarray:
    return np.arange(40) % 3


def texts(**fields: object) -> ExampleDataset:
    return examples_from_arrays(arrays(), labels(), num_classes=3, **fields)


def test_a_transformer_trains_by_names_as_it_does_in_a_loop_that_names_its_arguments():
    fitted = NAMED_PLAN.fit(bert(), texts(), test=texts())
    assert 0 <= fitted.evaluation["trained"]["accuracy"] <= 1

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, place):
            return {name: rows[place] for name, rows in arrays().items()}, labels()[place]

    model = bert()
    plan = DPSGD(steps=3, cohort=12, examples={"micro_batch": 6}, noise=1.0, seed=3)
    with plan.open(model, torch.optim.SGD(model.parameters(), lr=0.1), Rows()) as private:
        for named, targets in private:
            private.backward(functional.cross_entropy(model(**named).logits, targets, reduction="none"))
    assert all(torch.equal(one, model.state_dict()[name]) for name, one in fitted.model.state_dict().items())
    assert not torch.equal(model.classifier.weight, bert().classifier.weight)


def test_what_a_model_gives_may_be_an_object_with_one_tensor_or_a_tuple_of_it():
    class Wrapped(nn.Module):
        def __init__(self, how) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.how = nn.Linear(2, 3), how

        def forward(self, x):
            return self.how(self.layer(x))

    data = examples_from_arrays(np.random.default_rng(0).normal(size=(40, 2)).astype("f4"), labels(), num_classes=3)
    plain, *others = (
        NAMED_PLAN.fit(Wrapped(how), data, loss=cross_entropy, test=data).evaluation
        for how in (lambda y: y, lambda y: (y,), lambda y: {"scores": y})
    )
    assert all(other == plain for other in others)


@pytest.mark.parametrize("wrong", ["atention_mask", "x"])
def test_a_name_that_the_model_does_not_take_is_refused_with_those_that_it_takes(wrong):
    data = dataclasses.replace(texts(), input_names=(wrong, "input_ids"))
    with pytest.raises(InputError, match=f"no input '{wrong}'; its forward takes input_ids, attention_mask") as error:
        NAMED_PLAN.fit(bert(), data)
    assert "\n" not in str(error.value)


def test_a_wrapper_that_passes_its_keywords_on_takes_the_names_of_what_is_within():
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = bert()

        def forward(self, **keywords):
            return self.inner(**keywords)

    NAMED_PLAN.fit(Wrapper(), texts())
    with pytest.raises(InputError, match="no input 'attention'"):
        NAMED_PLAN.fit(Wrapper(), dataclasses.replace(texts(), input_names=("attention", "input_ids")))


@pytest.mark.parametrize("names", [("a",), ("a", "a"), ("a", "b c")])
def test_names_that_are_not_a_keyword_for_each_input_are_refused(names):
    with pytest.raises(InputError, match="name"):
        dataclasses.replace(texts(), input_names=names)


def test_names_stay_in_parts_and_stores_and_report_one_data_set_from_another(tmp_path: Path):
    data = texts()
    assert data.input_names == ("attention_mask", "input_ids")
    assert data.subset([3, 1]).input_names == data.input_names
    written = write_examples(data, tmp_path / "store")
    for copy in (written, open_examples(tmp_path / "store")):
        assert copy.input_names == data.input_names
        assert copy.fingerprint() == data.fingerprint()
    assert dataclasses.replace(data, input_names=()).fingerprint() != data.fingerprint()
    assert dataclasses.replace(data, input_names=data.input_names[::-1]).fingerprint() != data.fingerprint()


def test_a_table_names_its_inputs_by_their_columns():
    import pandas as pd

    table = pd.DataFrame({name: list(rows) for name, rows in arrays().items()} | {"label": labels(), "age": 1.0})
    read = open_examples(table, input=["attention_mask", "input_ids"], label="label", num_classes=3, named=True)
    assert read.fingerprint() == texts().fingerprint()
    with pytest.raises(InputError, match="one input together"):
        open_examples(table, input=["age", "label"], named=True)


def test_a_record_among_the_public_inputs_is_found_whichever_way_the_names_are_ordered():
    class Normalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.last = nn.Linear(2, 4), models.PublicBatchNorm(4), nn.Linear(4, 3)

        def forward(self, x, scale):
            return self.last(self.norm(self.first(x) * scale))

    rng = np.random.default_rng(0)
    x, scale = rng.normal(size=(40, 2)).astype("f4"), rng.normal(size=(40, 4)).astype("f4")
    data = examples_from_arrays({"scale": scale, "x": x}, labels(), num_classes=3)
    model = Normalised()
    models.use_public_batch(model, torch.from_numpy(x[:9] + 1), torch.from_numpy(scale[:9]))
    NAMED_PLAN.fit(model, data)
    models.use_public_batch(model, torch.from_numpy(x[:9]), torch.from_numpy(scale[:9]))
    with pytest.raises(InputError, match="are training records"):
        NAMED_PLAN.fit(model, data)


# Training on numbers, counts and losses of one's own: the same bound, measures of their kind, refusals in one line.


COUNT, WIDTH = 7, 3


def linear(outputs: int = 1, *, seed: int = 0) -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(WIDTH, outputs)


def numbers(count: int = 60, *, outputs: int = 0, seed: int = 0) -> ExampleDataset:
    """A number of each example, or several, that follow from its inputs."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(count, WIDTH)).astype(np.float32)
    slopes = rng.normal(size=(WIDTH, outputs or 1))
    targets = inputs @ slopes + 0.1 * rng.normal(size=(count, outputs or 1))
    return examples_from_arrays(inputs, targets if outputs else targets[:, 0])


def wild(seed: int, target: float, scale: float, outputs: int, task: str) -> ExampleDataset:
    """The last example can have any target, and inputs of any size."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(COUNT, WIDTH)).astype(np.float32)
    inputs[-1] *= scale
    targets = rng.poisson(2.0, (COUNT, outputs)).astype(np.float32)
    targets[-1] = abs(target) if task == "counts" else target
    return ExampleDataset(inputs=(inputs,), targets=targets if outputs > 1 else targets[:, 0])


@pytest.mark.parametrize("task", ["regression", "counts"])
@settings(deadline=None, max_examples=by_profile(40))
@given(
    seed=st.integers(0, 10**6),
    target=st.sampled_from([0.0, -3.0, 1e6, 1e15, 1e19, -1e30, 1e30]),
    scale=st.sampled_from([0.0, 1.0, 1e3, 1e20, float("inf"), float("nan")]),
    outputs=st.sampled_from([1, 2]),
    clip=st.sampled_from([1e-3, 1.0, 50.0]),
    clipping=st.sampled_from(["flat", "per_layer", "automatic"]),
    micro=st.sampled_from([1, 3, 16]),
)
def test_one_example_moves_the_sum_by_at_most_the_sensitivity_whatever_its_target(
    task, seed, target, scale, outputs, clip, clipping, micro
) -> None:
    """Inputs of NaN make outputs of NaN; a gradient that is not finite counts as zero."""
    plan = DPSGD(
        task=task,
        steps=1,
        cohort=4,
        clipping={"norm": clip, "kind": clipping},
        noise=1.0,
        examples={"micro_batch": micro},
    )
    source = RandomSource.from_seed(0)
    contribution = plan.contribution(linear(outputs, seed=1), wild(seed, target, scale, outputs, task), "cpu", 0)
    totals, odd = [], []
    for units in (np.arange(COUNT), np.arange(COUNT - 1)):
        cohort = plan.cohort.grouping.group(units, 0, source)
        share = contribution.clipped_sum(
            RoundContext(contribution.trained.initial, cohort, 0, plan.clipping, clip, source)
        )
        totals.append(share.total.clone())
        odd.append(share.tally["non_finite"])
    private_sum = plan.private_sum(COUNT)
    sensitivity = private_sum.relative_sensitivity * private_sum.scale(clip)
    moved = (totals[0] - totals[1]).norm().item()
    assert moved <= sensitivity + COUNT * clip * 2.0**-20  # single precision within a micro-batch
    assert torch.isfinite(totals[0]).all()
    if not np.isfinite(scale):
        assert odd == [1, 0]
        assert moved <= COUNT * clip * 2.0**-20


@settings(deadline=None, max_examples=by_profile(50))
@given(st.lists(st.tuples(st.floats(-6, 6), st.integers(0, 60)), min_size=1, max_size=20))
def test_the_poisson_loss_is_scipys_negative_log_likelihood_without_its_constant(pairs) -> None:
    logs, counts = (np.array(column, float) for column in zip(*pairs))
    found = poisson_loss(torch.from_numpy(logs)[:, None], torch.from_numpy(counts.astype(np.int64)))
    np.testing.assert_allclose(found, -poisson.logpmf(counts, np.exp(logs)) - gammaln(counts + 1), rtol=1e-9, atol=1e-9)


def test_losses_of_several_numbers_are_the_means_of_theirs() -> None:
    outputs, targets = torch.randn(4, 3, dtype=torch.float64), torch.rand(4, 3, dtype=torch.float64)
    for loss in (squared_error, poisson_loss):
        each = [loss(outputs[:, i], targets[:, i]) for i in range(3)]
        torch.testing.assert_close(loss(outputs, targets), torch.stack(each).mean(dim=0))


@pytest.mark.parametrize("outputs", [0, 2])
def test_without_clipping_and_noise_it_is_gradient_descent_on_least_squares(outputs: int) -> None:
    """θ_T = θ* + (I − ηH)^T (θ_0 − θ*), with H = 2 XᵀX / (n k) of the inputs beside a one."""
    data, steps, rate, model = numbers(outputs=outputs), 12, 0.1, linear(outputs or 1)
    plan = DPSGD(
        task="regression",
        steps=steps,
        cohort=len(data),
        server={"learning_rate": rate},
        noise=0,
        clipping=None,
        seed=1,
    )
    result = plan.fit(model, data)
    wide = np.c_[np.asarray(data.inputs[0], float), np.ones(len(data))]
    targets = np.asarray(data.targets, float).reshape(len(data), -1)
    best = np.linalg.lstsq(wide, targets, rcond=None)[0]
    hessian = 2 * wide.T @ wide / (len(data) * targets.shape[1])
    start = np.r_[model.weight.detach().numpy().T, model.bias.detach().numpy()[None]]
    expected = best + np.linalg.matrix_power(np.eye(WIDTH + 1) - rate * hessian, steps) @ (start - best)
    found = np.r_[result.model.weight.detach().numpy().T, result.model.bias.detach().numpy()[None]]
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    assert np.abs(found - start).max() > 0.1


def test_regression_learns_and_its_measures_are_in_the_files(tmp_path: Path) -> None:
    plan = DPSGD(task="regression", steps=60, cohort=100, server={"learning_rate": 0.3}, noise=1.0, seed=1)
    whole = numbers(450)
    data, test = whole.subset(np.arange(400)), whole.subset(np.arange(400, 450))
    result = plan.fit(linear(), data, test=test, validation=test, out=tmp_path / "run")
    kept = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    outputs = result.model(torch.from_numpy(test.examples(range(len(test)))[0][0])).detach().numpy()[:, 0]
    rmse = float(np.sqrt(np.mean((outputs - np.asarray(test.targets)) ** 2)))
    assert kept["trained"]["rmse"] == pytest.approx(rmse, rel=1e-6)
    assert kept["trained"]["r2"] > 0.9 > kept["untrained"]["r2"]
    assert set(kept["trained"]) == {"rmse", "mae", "r2", "not_finite", "baselines"}
    constant = kept["trained"]["baselines"]["constant"]
    assert constant["rmse"] == pytest.approx(np.std(np.asarray(test.targets)), rel=1e-6)
    assert constant["gain"]["rmse"][0] == pytest.approx(constant["rmse"] - rmse, rel=1e-6)
    assert Regression().headline(kept["trained"]) == f"RMSE {rmse:.4g}"


@pytest.mark.slow
def test_counts_are_learned_beyond_the_constant_rate() -> None:
    rng = np.random.default_rng(3)
    inputs = rng.normal(size=(800, WIDTH)).astype(np.float32)
    counts = rng.poisson(np.exp(0.5 + inputs[:, 0]))
    data = examples_from_arrays(inputs, counts, classes=False)
    plan = DPSGD(task="counts", steps=80, cohort=200, server={"learning_rate": 0.3}, noise=1.0, seed=1)
    row = plan.fit(linear(), data.subset(range(600)), test=data.subset(range(600, 800))).evaluation["trained"]
    assert row["deviance_explained"] > 0.3
    assert row["mean_rate"] == pytest.approx(row["mean_count"], rel=0.3)


@pytest.mark.slow
def test_a_loss_of_ones_own_needs_no_targets_and_reads_any_output() -> None:
    """Each example is drawn to the same point: the mean squared distance from it is the loss, and falls."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.code = linear(2)

        def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.code(inputs), inputs

    def distance(outputs, targets) -> torch.Tensor:
        assert targets is None
        return (outputs[0] - outputs[1][:, :2]).square().mean(dim=1)

    data = examples_from_arrays(np.asarray(numbers(300).inputs[0]))
    for precision in ("float32", "bfloat16"):
        plan = DPSGD(
            task="own",
            steps=30,
            cohort=100,
            server={"learning_rate": 0.5},
            noise=0.5,
            seed=1,
            examples={"precision": precision},
        )
        result = plan.fit(Two(), data, loss=distance, test=data)
        assert result.evaluation["trained"]["loss"] < 0.2 * result.evaluation["untrained"]["loss"]
        assert "The loss was chosen without looking at the records." in result.statement.assumptions


def test_a_given_loss_takes_the_place_of_the_tasks_own() -> None:
    seen = []

    def absolute(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        seen.append(len(targets))
        return (outputs[:, 0] - targets).abs()

    plan = DPSGD(task="regression", steps=1, cohort=20, noise=0, clipping=None, seed=1)
    own = plan.fit(linear(), numbers(), loss=absolute)
    assert seen
    assert not torch.equal(own.model.weight, plan.fit(linear(), numbers()).model.weight)


@pytest.mark.parametrize("task", ["classes", "regression", "counts"])
def test_the_statement_says_what_is_taken_to_be_public_about_the_targets(task: str) -> None:
    inputs = np.asarray(numbers().inputs[0])
    data = examples_from_arrays(inputs, np.arange(60) % 2, classes=task == "classes", num_classes=None)
    plan = DPSGD(task=task, steps=1, cohort=20, noise=1.0, seed=1)  # type: ignore[arg-type]
    said = " ".join(plan.fit(linear(2 if task == "classes" else 1), data).statement.assumptions)
    assert ("The set of classes is public" in said) == (task == "classes")
    assert ("The range of the targets is not assumed" in said) == (task != "classes")


FLOATS, CLASSES = numbers(), examples_from_arrays(np.zeros((60, WIDTH)) + np.arange(60)[:, None], np.arange(60) % 2)
NONE = examples_from_arrays(np.asarray(FLOATS.inputs[0]))
NEGATIVE = examples_from_arrays(np.asarray(FLOATS.inputs[0]), np.where(np.arange(60) < 41, 2, -3), classes=False)
BROKEN = ExampleDataset(inputs=FLOATS.inputs, targets=np.where(np.arange(60) == 8, np.nan, 1).astype(np.float32))


@pytest.mark.parametrize(
    ("task", "data", "outputs", "message"),
    [
        ("classes", FLOATS, 2, r"task=classes needs class numbers as targets, got float32 \(60,\); .*task=regression"),
        ("classes", NONE, 2, r"needs class numbers as targets, got none; .* use task=own with a loss"),
        ("regression", NONE, 1, "task=regression needs numbers as targets, got none; use task=own"),
        ("regression", CLASSES, 1, "task=regression needs numbers as targets, got 2 classes; use task=classes"),
        ("counts", CLASSES, 1, "task=counts needs numbers as targets, got 2 classes"),
        ("counts", NEGATIVE, 1, "needs targets >= 0, got -3 in example 41; correct it, or use task=regression"),
        ("regression", BROKEN, 1, "must be finite in single precision, got nan in example 8"),
        ("regression", FLOATS, 3, r"outputs \(2, 3\) for 2 examples with targets \(2,\); build it with 1 output, or"),
        ("regression", numbers(outputs=3), 2, r"with targets \(2, 3\); build it with 3 outputs"),
        ("counts", numbers(outputs=3), 3, r"needs targets >= 0, got -\d"),
        ("own", FLOATS, 1, r"task=own needs a loss: .*fit\(model, data, loss=…\)"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line_before_the_first_step(
    tmp_path: Path, task: str, data: ExampleDataset, outputs: int, message: str
) -> None:
    plan = DPSGD(task=task, steps=1, cohort=20, noise=1.0, seed=1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message) as caught:
        plan.fit(linear(outputs), data, out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_an_unknown_task_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="task must be one of classes, regression, counts, own, got ranks"):
        DPSGD(task="ranks")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs a loss"):
        CustomLoss().measure(linear(), FLOATS, curve=False, device="cpu")
    with pytest.raises(InputError, match="no targets to measure against"):
        Counts().measure(linear(), NONE, curve=False, device="cpu")


def test_one_output_may_come_with_or_without_its_dimension() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = linear()

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.part(inputs)[:, 0]

    plan = DPSGD(task="regression", steps=3, cohort=20, noise=0, clipping=None, seed=1)
    one, other = plan.fit(Flat(), FLOATS, test=FLOATS), plan.fit(linear(), FLOATS, test=FLOATS)
    torch.testing.assert_close(one.model.part.weight, other.model.weight)
    rows = [each.evaluation["trained"] for each in (one, other)]
    for row in rows:
        del row["baselines"]
    assert rows[0] == pytest.approx(rows[1])
