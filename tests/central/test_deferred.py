"""Tables that train row by row: the run, the released model and the guarantee are those of dense noise."""

import errno
import math
import os
import pickle
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from sfumato import data, models, runs
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central import DPSGD
from sfumato.clipping import Adaptive, Flat, PerLayer
from sfumato.mechanisms import Tree
from sfumato.models.row_embedding import RowEmbedding
from sfumato.sampling import Cohort, Shuffled
from sfumato.training import Callback, RunOptions, Stop
from sfumato.training.contribution import RoundContext
from sfumato.training.row_tables import OwedTables
from sfumato.training.server import Optimizer
from sfumato.training.table_training import DeferredTables, SelectedTables
from slow import slow_but

ROWS, EXAMPLES = 3000, 400


class Clicks(nn.Module):
    """Three columns of ids, two of which share a table, and two numbers."""

    def __init__(self, rows: int = ROWS) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, 4) for _ in range(2))
        self.dense = nn.Linear(14, 2)

    def forward(self, numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Logits."""
        parts = [self.tables[min(column, 1)](ids[:, column]) for column in range(3)]
        return self.dense(torch.cat([numbers, *parts], dim=1))


def clicks(rows: int = ROWS) -> Clicks:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Clicks(rows)


def records(examples: int = EXAMPLES, rows: int = ROWS, seed: int = 0) -> data.ExampleDataset:
    rng = np.random.default_rng(seed)
    ids = (rng.zipf(1.3, (examples, 3)) % rows).astype(np.int64)
    numbers = rng.normal(size=(examples, 2)).astype(np.float32)
    return data.examples_from_arrays((numbers, ids), rng.integers(0, 2, examples), num_classes=2)


def plan(**fields) -> DPSGD:
    usual = {"steps": 12, "cohort": 32, "noise": 1.0, "clipping": 0.5, "server": 0.5, "seed": 1, "tables": "deferred"}
    return DPSGD(**{**usual, **fields})


SERVERS = {
    "sgd": Optimizer(learning_rate=0.5),
    "momentum": Optimizer(learning_rate=0.3, momentum=0.8, weight_decay=0.01),
    "everything": Optimizer(
        learning_rate=0.3, momentum=0.7, nesterov=True, weight_decay=0.02, schedule="cosine", warm_up=3, ema_decay=0.9
    ),
}


@pytest.mark.parametrize("server", slow_but(SERVERS, "everything"))
def test_without_noise_it_is_the_dense_run(server: str) -> None:
    found = [
        plan(noise=0.0, server=SERVERS[server], tables=tables).fit(
            clicks(), records(), validation=records(60, seed=1), test=records(60, seed=2)
        )
        for tables in ("dense", "deferred")
    ]
    one, other = (each.model.state_dict() for each in found)
    assert list(one) == list(other)
    for name in one:
        torch.testing.assert_close(other[name], one[name], rtol=1e-5, atol=1e-6)
    losses = [[row["log_loss"] for row in each.history if row.get("evaluation")] for each in found]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert found[0].evaluation["trained"]["log_loss"] == pytest.approx(found[1].evaluation["trained"]["log_loss"])


SEVERAL = (50, 0, 0, 0, 30)
"""A column of up to four ids and one of a single id."""


def bags(examples: int = 200, seed: int = 0) -> data.ExampleDataset:
    rng = np.random.default_rng(seed)
    ids = rng.zipf(1.3, (examples, 5)) % np.array([50] * 4 + [30])
    ids[:, :4] *= np.arange(4) < rng.integers(0, 5, (examples, 1))
    numbers = rng.normal(size=(examples, 2)).astype(np.float32)
    targets = rng.integers(0, 2, examples)
    return data.examples_from_arrays((numbers, ids), targets, num_classes=2, vocabulary_sizes=SEVERAL)


def click_model() -> models.CTRModel:
    generator = torch.Generator().manual_seed(0)
    return models.ctr_model(2, vocabulary_sizes=SEVERAL, numeric=2, hidden=(8,), generator=generator)


@pytest.mark.parametrize("tables", slow_but(["deferred", "adafest"], "deferred"))
def test_columns_of_several_ids_train_as_in_the_dense_run(tables: str) -> None:
    one, other = (
        plan(noise=0.0, server=0.5, tables=each).fit(click_model(), bags()).model.state_dict()
        for each in ("dense", tables)
    )
    assert list(one) == list(other)
    for name in one:
        torch.testing.assert_close(other[name], one[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("tables", ["dense", "deferred"])
def test_an_example_of_several_ids_is_clipped_as_one_vector(tables: str) -> None:
    held, model, bound = bags(), click_model(), Flat(norm=0.05)
    contribution = plan(tables=tables, clipping=bound).contribution(model, held, "cpu", 0)
    chosen = np.arange(0, 200, 5)
    cohort = Cohort(chosen, chosen, np.arange(len(chosen) + 1))
    source = RandomSource.from_seed(2)
    share = contribution.clipped_sum(RoundContext(contribution.trained.vector.clone(), cohort, 1, bound, 0.05, source))
    expected = {name: torch.zeros_like(each, dtype=torch.float64) for name, each in model.named_parameters()}
    for (numbers, ids), target in (held.examples([place]) for place in chosen):
        loss = nn.functional.cross_entropy(model(torch.tensor(numbers), torch.tensor(ids)), torch.tensor(target))
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        norm = torch.stack([each.double().square().sum() for each in gradients]).sum().sqrt()
        for name, each in zip(expected, gradients, strict=True):
            expected[name] += each.double() * min(1.0, 0.05 / norm.item())
    found = dict(zip(contribution.trained.layout.names, share.parts(), strict=False))
    for name, total in share.tables.items():
        rows, values = total.gathered()
        found[name] = torch.zeros_like(expected[name]).index_add_(0, rows, values)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name].double(), value, rtol=1e-3, atol=1e-6)


TREE = {"noise": Tree(noise_multiplier=1.0, estimator="plain"), "cohort": Shuffled(size=32)}


@pytest.mark.parametrize("server", slow_but(SERVERS, "everything"))
@pytest.mark.parametrize(
    "fields",
    slow_but([{"clipping": Flat(norm=0.5)}, {"clipping": Adaptive(norm=0.5)}, TREE], {"clipping": Adaptive(norm=0.5)}),
)
def test_rows_that_no_one_read_are_released_with_the_noise_of_dense_rows(server: str, fields: dict) -> None:
    model, held = clicks(), records()
    moved = []
    for tables in ("dense", "deferred"):
        run = plan(server=SERVERS[server], tables=tables, **fields)
        found = run.fit(model, held, validation=records(60, seed=1))
        quiet = replace(run.noise, noise_multiplier=0.0)
        bare = replace(run, noise=quiet).fit(model, held)
        never = np.setdiff1d(np.arange(ROWS), held.inputs[1][:, 0])
        difference = found.model.tables[0].weight[never] - bare.model.tables[0].weight[never]
        moved.append(difference.detach().numpy().ravel())
    assert stats.ks_2samp(*moved).pvalue > 1e-3
    assert moved[1].std() > 0.001


def test_plain_sgd_gives_them_the_sum_of_all_steps() -> None:
    found = plan().fit(clicks(), records())
    never = np.setdiff1d(np.arange(ROWS), records().inputs[1][:, 0])
    moved = (found.model.tables[0].weight - clicks().tables[0].weight).detach().numpy()[never]
    assert stats.kstest(moved.ravel() / (0.5 * math.sqrt(12) * 0.5 / 32), "norm").pvalue > 1e-3


@pytest.mark.parametrize(("steps", "attained"), [(12, True), (24, False)])
def test_a_tree_over_several_shuffled_epochs_is_not_said_to_cost_what_it_may(steps: int, attained: bool) -> None:
    """Its cost allows rounds that follow each other, and a unit is in one round of each epoch."""
    statement = plan(steps=steps, **TREE).fit(clicks(), records()).statement
    assert (statement.epsilon_lower is not None) == attained


@pytest.mark.parametrize("bound", [Flat(norm=0.3), PerLayer(norm=0.3)])
def test_a_clipped_sum_is_the_dense_one(bound: object) -> None:
    sums = []
    for tables in ("dense", "deferred"):
        contribution = plan(tables=tables, clipping=bound).contribution(clicks(), records(), "cpu", 0)
        theta = contribution.trained.vector.clone()
        chosen = np.arange(0, EXAMPLES, 3)
        cohort = Cohort(chosen, chosen, np.arange(len(chosen) + 1))
        share = contribution.clipped_sum(RoundContext(theta, cohort, 1, bound, 0.3, RandomSource.from_seed(2)))
        sums.append((share, contribution.trained.layout.names))
    (dense, names), (rows, rest) = sums
    expected = dict(zip(names, dense.parts(), strict=True))
    for name, view in zip(rest, rows.parts(), strict=False):
        torch.testing.assert_close(view, expected[name])
    for name, total in rows.tables.items():
        places, values = total.gathered()
        whole = torch.zeros(ROWS, 4, dtype=torch.float64).index_add_(0, places, values)
        torch.testing.assert_close(whole, expected[name])
    assert rows.tally.row() == dense.tally.row()


def test_the_released_model_is_ordinary_and_the_users_own_is_unchanged(tmp_path) -> None:
    model = clicks()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = plan().fit(model, records(), out=tmp_path / "run")
    assert not any(isinstance(part, RowEmbedding) for part in [*found.model.modules(), *model.modules()])
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    from safetensors.torch import load_file

    kept = load_file(tmp_path / "run" / "model.safetensors")
    for name, value in found.model.state_dict().items():
        assert torch.equal(kept[name], value)
    assert kept["tables.1.weight"].shape == (ROWS, 4)
    dense = plan(tables="dense").fit(clicks(), records())
    more = set(found.statement.assumptions) - set(dense.statement.assumptions)
    assert len(more) == 1
    assert "No earlier copy of the run's folder went on." in str(more)
    rest = tuple(each for each in found.statement.assumptions if each not in more)
    assert replace(found.statement, assumptions=rest).text() == dense.statement.text()


class Keeps(Callback):
    """Keeps what the model's own state_dict gives in the middle of a run."""

    def __init__(self) -> None:
        self.tables: list[torch.Tensor] = []

    def on_evaluation(self, row: dict, model: nn.Module) -> None:
        """Twice the same."""
        if row["round"] == 8:
            self.tables += [model.state_dict()["tables.0.weight"].clone() for _ in range(2)]


def test_a_callback_that_saves_the_model_gets_the_noise_of_all_rows() -> None:
    keeps = Keeps()
    options = RunOptions(evaluate_every=4, callbacks=[keeps])
    plan().fit(clicks(), records(), validation=records(60, seed=1), options=options)
    assert torch.equal(*keeps.tables)
    moved = (keeps.tables[0] - clicks().tables[0].weight).detach().numpy()
    never = np.setdiff1d(np.arange(ROWS), records().inputs[1][:, 0])
    assert stats.kstest(moved[never].ravel() / (0.5 * math.sqrt(8) * 0.5 / 32), "norm").pvalue > 1e-3


class SavesAll(Callback):
    """Saves the whole model, as `torch.save` does."""

    def on_evaluation(self, row: dict, model: nn.Module) -> None:
        """With all that it refers to."""
        pickle.dumps(model)


def test_a_model_that_reads_from_a_run_is_not_saved_with_the_runs_key() -> None:
    options = RunOptions(evaluate_every=4, callbacks=[SavesAll()])
    with pytest.raises(InputError, match=r"cannot be saved as a whole; save its state_dict\(\)"):
        plan().fit(clicks(), records(), validation=records(60, seed=1), options=options)


class Dies(Callback):
    """Ends the process's work after a round."""

    def on_round(self, row: dict) -> None:
        """Fail in the eighth."""
        if row["round"] == 8:
            raise RuntimeError("killed")


@pytest.mark.parametrize(
    ("server", "fields"),
    slow_but([("sgd", {}), ("everything", {}), ("everything", TREE)], ("everything", {}), ("everything", TREE)),
)
def test_killed_and_resumed_it_is_byte_identical(server: str, fields: dict, tmp_path) -> None:
    run, validation = plan(server=SERVERS[server], **fields), records(60, seed=1)
    for name in ("whole", "killed"):
        options = RunOptions(checkpoint_every=3, evaluate_every=4, callbacks=[Dies()] if name == "killed" else [])
        try:
            run.fit(clicks(), records(), validation=validation, out=tmp_path / name, options=options)
        except RuntimeError:
            options = RunOptions(checkpoint_every=3, evaluate_every=4)
            run.fit(clicks(), records(), validation=validation, out=tmp_path / name, resume=True, options=options)
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed"))
    assert one == other


class Stops(Callback):
    """Asks the run to stop after a round."""

    def on_round(self, row: dict) -> None:
        """After the last but one."""
        if row["round"] == 11:
            raise Stop


@pytest.mark.parametrize("server", slow_but(["sgd", "everything"], "everything"))
def test_a_run_that_was_stopped_goes_on_with_the_noise_that_it_has_released(server: str, tmp_path) -> None:
    never, found = np.setdiff1d(np.arange(ROWS), records().inputs[1][:, 0]), []
    for resume in (False, True, True):
        options = RunOptions(evaluate_every=0, callbacks=[] if resume else [Stops()])
        made = plan(server=SERVERS[server]).fit(
            clicks(), records(), out=tmp_path / "run", resume=resume, options=options
        )
        found.append((made.model.tables[0].weight - clicks().tables[0].weight)[never].detach().numpy().ravel())
    assert np.corrcoef(found[0], found[1])[0, 1] > 0.9  # 11 of 12 noises are the same; else no correlation
    assert np.array_equal(found[1], found[2])  # and a run that has ended draws none


@pytest.mark.fresh
@pytest.mark.parametrize(
    "fields",
    [{"tables": "deferred"}, {"tables": "adafest"}, {"tables": "dense", "trainable": "dense"}],
    ids=["deferred", "adafest", "frozen tables"],
)
def test_a_run_goes_on_with_a_module_of_other_first_weights(fields: dict, tmp_path) -> None:
    """As a command makes it: without a seed each process draws its own, and the checkpoint decides."""
    run, found = plan(**fields), []
    run.fit(clicks(), records(), out=tmp_path / "one", options=RunOptions(callbacks=[Stops()]))
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    for name in ("one", "other"):
        model = clicks()
        if name == "other":
            with torch.no_grad():
                for each in model.parameters():
                    each.add_(torch.randn(each.shape, generator=torch.Generator().manual_seed(1)))
        found.append(run.fit(model, records(), out=tmp_path / name, resume=True).model.state_dict())
    for name, value in found[0].items():
        assert torch.equal(found[1][name], value), name


class StopsAtOnce(Callback):
    """Asks the run to stop when the untrained model is measured."""

    def on_evaluation(self, row: dict, model: nn.Module) -> None:
        """At the first measurement."""
        raise Stop


def test_a_run_stops_at_its_first_measurement_and_goes_on(tmp_path) -> None:
    held = {"validation": records(60, seed=1), "out": tmp_path / "run"}
    options = RunOptions(evaluate_every=4, callbacks=[StopsAtOnce()])
    stopped = plan().fit(clicks(), records(), **held, options=options)
    assert not stopped.finished
    assert stopped.statement.epsilon == 0
    assert plan().fit(clicks(), records(), **held, resume=True, options=RunOptions(evaluate_every=4)).finished


@pytest.mark.slow
def test_a_rate_may_be_a_tensor() -> None:
    rates = (0.25, torch.tensor(0.25))
    made = [
        plan(steps=3).fit(
            clicks(), records(), options=RunOptions(optimizer=lambda given, rate=rate: torch.optim.SGD(given, lr=rate))
        )
        for rate in rates
    ]
    assert torch.equal(*(each.model.tables[0].weight for each in made))


def killed(folder, **fields) -> None:
    options = RunOptions(checkpoint_every=3, evaluate_every=4, callbacks=[Dies()])
    with pytest.raises(RuntimeError, match="killed"):
        plan(**fields).fit(clicks(), records(), validation=records(60, seed=1), out=folder, options=options)


def test_other_readings_than_before_are_refused(tmp_path) -> None:
    killed(tmp_path / "run")
    with pytest.raises(InputError, match=r"every 4 \(0: none\), got 0; give evaluate_every=4"):
        plan().fit(clicks(), records(), out=tmp_path / "run", resume=True)
    killed(tmp_path / "dense", tables="dense")
    assert plan(tables="dense").fit(clicks(), records(), out=tmp_path / "dense", resume=True).finished


def test_other_data_to_measure_on_change_no_noise(tmp_path) -> None:
    found = [plan().fit(clicks(), records(), validation=records(60, seed=seed)).model for seed in (1, 2)]
    for one, other in zip(*(model.state_dict().values() for model in found), strict=True):
        assert torch.equal(one, other)


def test_a_table_of_another_size_is_refused_on_resume(tmp_path) -> None:
    killed(tmp_path / "run")
    with pytest.raises(InputError, match=r"is from another plan, model or data set .* resume with the same ones"):
        plan().fit(clicks(ROWS + 1), records(), validation=records(60, seed=1), out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("writing", slow_but(["checkpoint", "run"], "checkpoint"))
def test_a_disk_that_fills_up_in_the_flush_releases_nothing_and_the_run_goes_on(writing, tmp_path, monkeypatch) -> None:
    """The last checkpoint and the model that is released hold the flushed tables."""
    short, out = plan(steps=3), tmp_path / "run"
    usual, flushed = getattr(runs, writing).save_file, []

    def full(tensors, path, *more) -> None:
        if flushed:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        usual(tensors, path, *more)

    flush = OwedTables.flush
    monkeypatch.setattr(OwedTables, "flush", lambda self: flushed.append(flush(self)))
    with monkeypatch.context() as patch:
        patch.setattr(getattr(runs, writing), "save_file", full)
        with pytest.raises(InputError, match=rf"No space left on device; .* go on with .*--resume {out}"):
            short.fit(clicks(), records(), out=out)
    assert not {path.name for path in out.iterdir()} & {"model.safetensors", "statement.json"}
    short.fit(clicks(), records(), out=out, resume=True)
    whole = short.fit(clicks(), records(), out=tmp_path / "whole")
    assert (out / "model.safetensors").read_bytes() == (whole.folder / "model.safetensors").read_bytes()


class Tied(Clicks):
    """One table twice."""

    def __init__(self) -> None:
        super().__init__()
        self.tables[1].weight = self.tables[0].weight


class OneLayerTwice(Clicks):
    """One layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.tables[1] = self.tables[0]


def hooked() -> Clicks:
    model = clicks()
    model.tables[0].register_forward_hook(lambda layer, inputs, output: 2 * output)
    return model


def replaced_forward() -> Clicks:
    model = clicks()
    layer = model.tables[0]
    layer.forward = lambda ids: 2 * nn.Embedding.forward(layer, ids)
    return model


def with_a_buffer() -> Clicks:
    model = clicks()
    model.tables[0].register_buffer("scale", torch.ones(1))
    return model


def limited() -> Clicks:
    model = clicks()
    model.tables[0].max_norm = 1.0
    return model


@pytest.mark.parametrize(
    ("fields", "model", "words"),
    [
        ({"server": "adam"}, clicks, "deferred noise needs plain SGD, with or without momentum, got Adam; use"),
        ({"server": "adagrad"}, clicks, "got Adagrad; use server=sgd, or tables=dense"),
        (
            {"tables": DeferredTables(in_place=True), "server": Optimizer(ema_decay=0.9)},
            clicks,
            "tables.in_place trains in the one that is given",
        ),
        ({**TREE, "noise": Tree(noise_multiplier=1.0)}, clicks, "or that of one tree with the plain estimator (noise="),
        ({**TREE, "noise": Tree(noise_multiplier=1.0, estimator="plain", restart=3)}, clicks, "or that of one tree"),
        ({**TREE, "tables": "adafest"}, clicks, "independent noise in each round"),
        ({}, Tied, "shares its weight with tables.1"),
        ({}, OneLayerTwice, "shares its weight with tables.1"),
        ({}, limited, "the table tables.0 has max_norm"),
        ({}, hooked, "the table tables.0 has hooks, a forward of its own or parts besides its weight"),
        ({}, replaced_forward, "the table tables.0 has hooks, a forward of its own"),
        ({}, with_a_buffer, "or parts besides its weight, which rows do not go through; move them"),
        ({}, lambda: clicks().bfloat16(), "the table tables.0 is bfloat16; train it in float32"),
        ({"trainable": "dense"}, clicks, "are trained nn.Embedding or nn.EmbeddingBag layers, and the model has none"),
        ({"trainable": "tables"}, clicks, "needs a trained layer besides its tables"),
        ({"tables": "lazy"}, clicks, "tables must be one of dense, deferred, adafest, got lazy"),
    ],
)
def test_what_cannot_be_deferred_is_refused(fields: dict, model, words: str) -> None:
    with pytest.raises(InputError) as refused:
        plan(**fields).fit(model(), records())
    assert words in str(refused.value)


def test_a_loop_of_ones_own_does_not_defer() -> None:
    model = clicks()
    with pytest.raises(InputError, match="tables='deferred' is for fit"):
        DPSGD(tables="deferred", noise=1.0, steps=2, cohort=4).open(
            model, torch.optim.SGD(model.parameters(), 0.1), list(range(8))
        )


def test_an_id_without_a_row_is_refused_in_a_line() -> None:
    with pytest.raises(InputError, match="IndexError: index out of range in self"):
        plan().fit(clicks(100), records())


def test_frozen_tables_stay_as_they_are() -> None:
    model = clicks()
    model.tables[1].weight.requires_grad_(False)
    found = plan().fit(model, records())
    assert torch.equal(found.model.tables[1].weight, model.tables[1].weight)
    assert not torch.equal(found.model.tables[0].weight, model.tables[0].weight)


class Bags(Clicks):
    """A column of three ids, the first of which is padding, and one of two with weights."""

    def __init__(self, rows: int = ROWS) -> None:
        super().__init__(rows)
        self.tables = nn.ModuleList(
            [nn.EmbeddingBag(rows, 4, mode="mean", padding_idx=0), nn.EmbeddingBag(rows, 4, mode="sum")]
        )
        self.dense = nn.Linear(10, 2)

    def forward(self, numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Logits; the second table gets its bags as one list."""
        starts = torch.arange(0, ids[:, :2].numel(), 2)
        weights = 1.0 + ids[:, :2].remainder(3).flatten().to(numbers.dtype)
        parts = [self.tables[0](ids), self.tables[1](ids[:, :2].flatten(), starts, per_sample_weights=weights)]
        return self.dense(torch.cat([numbers, *parts], dim=1))


def test_bags_of_a_users_own_model_train_as_in_the_dense_run() -> None:
    torch.manual_seed(0)
    model = Bags()
    one, *others = (
        plan(noise=0.0, steps=4, tables=tables).fit(model, records()).model
        for tables in ("dense", "deferred", "adafest")
    )
    for other in others:
        assert [type(each) for each in other.modules()] == [type(each) for each in model.modules()]
        assert (other.tables[0].mode, other.tables[0].padding_idx, other.tables[1].mode) == ("mean", 0, "sum")
        for name, weight in one.state_dict().items():
            torch.testing.assert_close(other.state_dict()[name], weight, rtol=1e-5, atol=1e-6)
    assert not torch.equal(one.tables[1].weight, model.tables[1].weight)


def in_place(model: nn.Module, **fields) -> nn.Module:
    how = DeferredTables(in_place=True)
    return plan(tables=how, steps=4, **fields).fit(model, records()).model


def test_tables_that_train_in_place_are_those_of_the_copy_without_one() -> None:
    model = clicks()
    copied, own = plan(steps=4).fit(clicks(), records()).model, in_place(model)
    for name, weight in copied.state_dict().items():
        assert torch.equal(own.state_dict()[name], weight), name
    for one, other in zip(own.tables, model.tables, strict=True):
        assert one.weight.data_ptr() == other.weight.data_ptr()
    assert torch.equal(model.dense.weight, clicks().dense.weight)


class Fails(Callback):
    """An error of a user's own, in the middle of a run."""

    def on_round(self, row: dict) -> None:
        """After the third step."""
        if row["round"] == 3:
            raise ZeroDivisionError


def test_after_an_error_tables_that_train_in_place_do_not_show_who_was_read() -> None:
    model = clicks()
    with pytest.raises(ZeroDivisionError):
        plan(tables=DeferredTables(in_place=True)).fit(model, records(), options=RunOptions(callbacks=[Fails()]))
    assert all(bool(table.weight.isnan().all()) for table in model.tables)


def test_tables_that_cannot_be_written_to_do_not_train_in_place() -> None:
    model = clicks()
    model.tables[0].weight.data = torch.zeros(4, ROWS).t()
    with pytest.raises(InputError, match=r"the table tables.0 cannot be trained in place: .*; move it there"):
        in_place(model)


class Watches(Callback):
    """What a few steps allocate, and how much of a file they look at."""

    def __init__(self, file: Path) -> None:
        self.file, self.allocated, self.looked_at = file, 0, 0

    def on_round(self, row: dict) -> None:
        """From the end of the second step to that of the fifth."""
        if row["round"] == 2:
            tracemalloc.start()
        if row["round"] == 5:
            self.allocated = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            maps = Path("/proc/self/smaps").read_text(encoding="utf-8").split(str(self.file))[1:]
            self.looked_at = sum(int(each.split("Rss:")[1].split()[0]) for each in maps) << 10
            raise Stop


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux shows which pages were read")
@pytest.mark.parametrize("how", [DeferredTables(in_place=True), SelectedTables(in_place=True, false_survivors=1.0)])
def test_a_step_looks_at_the_rows_of_its_batch_only(how: object, tmp_path) -> None:
    rows, width = 1 << 23, 1  # 1,024 rows a page, 32 MiB
    file = tmp_path / "table"
    table = np.memmap(file, np.float32, "w+", shape=(rows, width))
    model = clicks(8)
    model.tables[0] = nn.Embedding(rows, width, _weight=torch.from_numpy(table))
    model.dense = nn.Linear(2 + width + 8, 2)
    watches = Watches(file)
    options = RunOptions(callbacks=[watches])
    plan(tables=how, server=0.5).fit(model, records(rows=8), options=options)
    assert 0 < watches.looked_at < table.nbytes / 20
    assert 0 < watches.allocated < rows  # not a byte a row, with what the cost of a step takes
    assert how != DeferredTables(in_place=True) or table.all()  # in the end each row has its noise
