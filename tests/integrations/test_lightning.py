"""PyTorch Lightning trains the same private sum, and refuses what would break it."""

import copy
import os
import signal
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Callback, Trainer, callbacks
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric, SumMetric

from central.loops import STEPS, losses_of, net, plan, records, same, sgd, train, usual
from sfumato._check import InputError
from sfumato.integrations import MLflow, PrivateModule, WandB
from sfumato.integrations.loggers import Place
from sfumato.training import RunOptions
from slow import slow_but

# LightningModules on made-up records, and Trainers that say little.


class Module(PrivateModule):
    """The network of the loops' tests."""

    def __init__(self, network: nn.Module | None = None) -> None:
        super().__init__()
        self.net = net() if network is None else network

    def losses(self, batch, index):
        return losses_of(self.net, batch)

    def validation_step(self, batch, index):
        self.log("loss", losses_of(self.net, batch).mean())

    def configure_optimizers(self):
        return sgd(self.net)


def trainer(**settings) -> Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    return Trainer(**{"max_epochs": -1, "logger": False, "accelerator": "cpu", **quiet} | settings)


def held_out() -> DataLoader:
    return DataLoader(records(), batch_size=150)


# A module that Lightning's Trainer drives is the loop of one's own: the same bits, checkpoints and statement.

PER_EPOCH = 5  # 300 examples, 64 in a batch


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        yield


class At(Callback):
    """Calls `act(module)` behind so many turns."""

    def __init__(self, turns: int, act) -> None:
        self.turns, self.act = turns, act

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.turns -= 1
        if not self.turns:
            self.act(module)


def fit(module=None, *, of=plan, data=None, val=None, **settings):
    """A run; the module and its loop. What `open` takes is under `options`."""
    module, options = module or Module(), settings.pop("options", {})
    private = module.fit(trainer(**settings), of(), data or records(), val_dataloaders=val, **options)
    return module, private


@pytest.mark.parametrize("fields", slow_but([{}, {"clipping": "per_layer"}, {"examples.micro_batch": 64}], {}))
def test_a_module_and_a_loop_give_the_same_bits(fields):
    module, private = fit(of=lambda: plan(**fields), val=held_out())
    model, loop = train(of=lambda: plan(**fields))
    assert same(module.net, model)
    assert private.done == private.planned == STEPS
    assert private.result.finished
    assert private.statement.epsilon == loop.statement.epsilon
    assert private.statement.assumptions == loop.statement.assumptions


def test_lightning_s_precision_holds_for_the_losses_and_for_nothing_else():
    module, _ = fit(precision="bf16-mixed")
    model = net()
    with plan().open(model, sgd(model), records()) as private:
        for batch in private:
            with torch.autocast("cpu", torch.bfloat16):
                losses = losses_of(model, batch)
            private.backward(losses)
    assert same(module.net, model)
    assert not same(module.net, usual()[0])


def test_lightning_counts_steps_and_epochs_and_measures_behind_each():
    measured = []

    class Measured(Callback):
        def on_validation_end(self, trainer, module):
            if not trainer.sanity_checking:
                measured.append((trainer.current_epoch, trainer.global_step))

    module = Module()
    by = trainer(callbacks=[Measured()])
    module.fit(by, plan(), records(), val_dataloaders=held_out())
    assert by.global_step == STEPS
    assert measured == [(0, PER_EPOCH), (1, STEPS)]
    assert "loss" in by.callback_metrics


def test_an_empty_draw_is_a_step_too():
    few = torch.utils.data.Subset(records(), range(40))
    module, private = fit(of=lambda: plan(**{"cohort.size": 1}, steps=12), data=few)
    model, _ = train(data=few, of=lambda: plan(**{"cohort.size": 1}, steps=12))
    assert 0 in [row["not_private"]["examples"] for row in private.result.history if "clip_norm" in row]
    assert same(module.net, model)


@pytest.mark.parametrize(
    ("settings", "done"),
    slow_but(
        [
            ({"max_steps": 2}, 2),
            ({"max_epochs": 1}, PER_EPOCH),
            ({"limit_train_batches": 2, "max_epochs": 2}, 4),
            ({"fast_dev_run": True}, 1),
            ({"callbacks": [At(3, lambda module: setattr(module.trainer, "should_stop", True))]}, 3),
        ],
        ({"max_steps": 2}, 2),
    ),
)
def test_lightning_may_end_the_run_behind_any_step_and_it_goes_on_to_the_same_bits(tmp_path, settings, done):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    out = {"options": {"out": tmp_path / "run"}}
    module, private = fit(**settings, **out)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert private.done == done
    assert not private.result.finished
    stopped, loop = train(of=lambda: plan(steps=done))
    assert same(module.net, stopped)
    assert private.statement.epsilon == loop.statement.epsilon
    again, private = fit(options={**out["options"], "resume": True})
    assert private.result.finished
    assert same(again.net, usual()[0])


class Scheduled(Module):
    """With a scheduler of each kind."""

    def __init__(self, interval: str = "step") -> None:
        super().__init__()
        self.interval, self.rates = interval, []

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.net.parameters(), lr=0.05)
        scheduler = lr_scheduler.LambdaLR(optimizer, lambda done: 0.5**done)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.rates.append(self.optimizers().param_groups[0]["lr"])


@pytest.mark.slow
def test_schedulers_follow_steps_or_epochs_and_go_with_the_checkpoint(tmp_path):
    whole, _ = fit(Scheduled())
    assert whole.rates == [0.05 * 0.5 ** (1 + place) for place in range(STEPS)]
    fit(Scheduled(), max_steps=3, options={"out": tmp_path / "run"})
    again, _ = fit(Scheduled(), options={"out": tmp_path / "run", "resume": True})
    assert again.rates == whole.rates[3:]
    assert same(again.net, whole.net)
    by_epoch, _ = fit(Scheduled("epoch"))
    assert by_epoch.rates == [0.05] * (PER_EPOCH - 1) + [0.025] * (STEPS - PER_EPOCH + 1)


@pytest.mark.slow
def test_a_checkpoint_of_lightning_s_holds_the_weights_that_are_released(tmp_path):
    kept = callbacks.ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=2, save_top_k=-1)
    fit(callbacks=[kept], enable_checkpointing=True)
    for step in (2, 4, 6):
        loaded = Module.load_from_checkpoint(tmp_path / f"step={step}.ckpt")
        stopped, _ = fit(max_steps=step)
        assert same(loaded, stopped)


def test_what_is_logged_is_of_the_step_s_examples_and_not_of_trials():
    class Counting(Module):
        def __init__(self) -> None:
            super().__init__()
            self.all = SumMetric()

        def losses(self, batch, index):
            if not self.private.trying:
                self.all.update(float(len(batch[0])))
            self.log("examples", float(len(batch[0])), on_step=False, on_epoch=True, reduce_fx="sum")
            self.log("first", batch[0][:, 0].mean(), on_step=False, on_epoch=True)
            return super().losses(batch, index)

    seen = []

    class Seen(Callback):
        def on_train_epoch_end(self, trainer, module):
            seen.append(float(trainer.callback_metrics["examples"]))

    module, private = fit(Counting(), callbacks=[Seen()])
    counts = [row["not_private"]["examples"] for row in private.result.history if "clip_norm" in row]
    assert seen == [sum(counts[:PER_EPOCH]), sum(counts[PER_EPOCH:])]
    assert module.all.compute() == sum(counts)
    assert module.private is None


def test_hooks_before_a_step_see_the_gradient_with_its_noise_and_copies_may_be_taken():
    class Looking(Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms, self.mean = [], MeanMetric()

        def on_before_optimizer_step(self, optimizer):
            self.norms.append(float(self.net[0].weight.grad.norm()))
            copy.deepcopy(self)

        def validation_step(self, batch, index):
            self.mean.update(losses_of(self.net, batch))
            self.log("mean", self.mean)

    module, _ = fit(Looking(), val=held_out(), callbacks=[callbacks.EMAWeightAveraging()])
    assert len(module.norms) == STEPS
    assert all(norm > 0 for norm in module.norms)


def test_ctrl_c_ends_the_run_behind_the_step_in_hand_with_a_statement(tmp_path):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    interrupt = At(2, lambda module: os.kill(os.getpid(), signal.SIGINT))
    _, private = fit(callbacks=[interrupt], options={"out": tmp_path / "run"})
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert private.done in (2, 3)
    assert not private.result.finished
    assert private.statement.epsilon == train(of=lambda: plan(steps=private.done))[1].statement.epsilon
    again, _ = fit(options={"out": tmp_path / "run", "resume": True})
    assert same(again.net, usual()[0])


class Failing(Module):
    """Raises in the middle of a step."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.error, self.calls = error, 0

    def losses(self, batch, index):
        if not self.private.trying and self.private.done == 3 and index == 1:
            raise self.error
        return super().losses(batch, index)


@pytest.mark.parametrize(
    ("error", "told"),
    slow_but(
        [(ZeroDivisionError, ZeroDivisionError), (KeyboardInterrupt, SystemExit), (StopIteration, InputError)],
        (KeyboardInterrupt, SystemExit),
    ),
)
def test_a_run_that_is_torn_down_within_a_step_goes_on_to_the_same_bits(tmp_path, error, told):
    before = signal.getsignal(signal.SIGINT)
    options = {"out": tmp_path / "run", "options": RunOptions(checkpoint_every=2)}
    with pytest.raises(told):
        fit(Failing(error), options=options)
    assert signal.getsignal(signal.SIGINT) is before
    again, private = fit(options={**options, "resume": True})
    assert private.result.finished
    assert same(again.net, usual()[0])


def test_importing_sfumato_imports_no_lightning():
    code = "import sys, sfumato.algorithms, sfumato.integrations; sys.exit('lightning' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- refusals


@pytest.mark.parametrize(
    "settings",
    [
        {"gradient_clip_val": 1.0},
        {"accumulate_grad_batches": 2},
        {"overfit_batches": 2},
        {"min_epochs": 2},
        {"min_steps": 3},
        {"precision": "bf16-true"},
        {"precision": "64-true"},
    ],
)
def test_a_setting_that_the_guarantee_does_not_bear_is_refused_by_name(settings):
    with pytest.raises(InputError, match=next(iter(settings))) as error:
        fit(**settings)
    assert "\n" not in str(error.value)


def test_several_devices_are_refused():
    with pytest.raises(InputError, match="2 processes by DDPStrategy"):
        fit(devices=2, strategy="ddp")
    with pytest.raises(InputError, match="1 processes by DDPStrategy"):
        fit(devices=1, strategy="ddp")


@pytest.mark.parametrize(
    "callback",
    [
        callbacks.LearningRateFinder(),
        callbacks.BatchSizeFinder(),
        callbacks.GradientAccumulationScheduler({0: 2}),
        callbacks.StochasticWeightAveraging(0.1),
    ],
)
def test_a_callback_that_trains_by_itself_is_refused_by_name(callback):
    with pytest.raises(InputError, match=f"the callback {type(callback).__name__}"):
        fit(callbacks=[callback])


def refused(told: str, **methods) -> None:
    """A module with these methods is not trained."""
    with pytest.raises(InputError, match=told):
        fit(type("Other", (Module,), methods)())


def test_what_would_break_the_guarantee_in_a_loop_is_refused_in_a_module_as_well():
    refused("coupled", losses=lambda self, batch, index: losses_of(self.net, (batch[0] - batch[0].mean(0), batch[1])))
    refused("one loss for each", losses=lambda self, batch, index: losses_of(self.net, batch).mean())

    def by_hand(self, batch, index):
        self.optimizers().step()
        return losses_of(self.net, batch)

    refused("by hand", losses=by_hand)


def test_a_module_that_lightning_s_turns_do_not_fit_is_refused():
    refused("2 optimisers", configure_optimizers=lambda self: [sgd(self.net[0]), sgd(self.net[3])])
    refused("rename it to losses", training_step=lambda self, batch, index: losses_of(self.net, batch).mean())
    refused(r"has no losses\(batch, index\)", losses=PrivateModule.losses)
    refused("on_after_batch_transfer", on_after_batch_transfer=lambda self, batch, dataloader_idx: batch)

    def plateau(self):
        optimizer = sgd(self.net)
        scheduler = {"scheduler": lr_scheduler.ReduceLROnPlateau(optimizer), "monitor": "loss"}
        return {"optimizer": optimizer, "lr_scheduler": scheduler}

    refused("ReduceLROnPlateau", configure_optimizers=plateau)


def test_a_plan_that_stands_in_the_data_set_s_place_is_refused():
    with pytest.raises(InputError, match=r"plan must be a DPSGD, got TensorDataset; the order is fit\(trainer, plan,"):
        Module().fit(trainer(), records(), plan())


def test_parameters_outside_of_a_network_and_modules_within_modules_are_refused():
    module = Module()
    module.scale = nn.Parameter(torch.ones(1))
    with pytest.raises(InputError, match="scale belongs to no layer"):
        fit(module)
    module = Module()
    module.inner = Module()
    with pytest.raises(InputError, match="inner is a LightningModule within"):
        fit(module)


def test_weights_that_a_callback_changes_between_two_steps_are_refused():
    def change(module):
        with torch.no_grad():
            module.net[3].bias += 1.0

    with pytest.raises(InputError, match="was changed between two steps"):
        fit(callbacks=[At(2, change)])


def test_a_trainer_that_knows_neither_plan_nor_data_is_refused():
    with pytest.raises(InputError, match="knows neither plan nor data"):
        trainer().fit(Module(), train_dataloaders=held_out())
    with pytest.raises(InputError, match="took no step"):
        fit(max_epochs=0)
    with pytest.raises(InputError, match=r"must be a Trainer of lightning\.pytorch, got int"):
        Module().fit(3, plan(), records())


# Projects, URIs and places that are of no use are refused before anything runs; needs no service.


@pytest.mark.parametrize("project", ["", "a/b/c", "faces?", "a" * 129, "team/"])
def test_a_project_that_wandb_refuses_is_one_line(monkeypatch, project):
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(errors=SimpleNamespace(Error=RuntimeError)))
    WandB("team/faces")
    with pytest.raises(InputError, match="PROJECT or ENTITY/PROJECT"):
        WandB(project)


def test_a_password_does_not_get_into_the_plan():
    with pytest.raises(InputError, match="MLFLOW_TRACKING_PASSWORD") as told:
        MLflow("faces", uri="https://me:secret@example.org/mlflow")
    assert "secret" not in str(told.value)


def test_a_database_in_no_folder_is_one_line(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        MLflow("faces", uri=f"sqlite:///{tmp_path}/none/mlflow.db")


def test_a_place_is_found_again_and_services_do_not_mix(tmp_path):
    Place(tmp_path, "wandb:faces").keep("abc")
    Place(tmp_path, "mlflow:#faces").keep("def")
    assert Place(tmp_path, "wandb:faces").known == "abc"
    assert Place(tmp_path, "wandb:other").known is None
    assert Place(None, "wandb:faces").known is None


def test_a_damaged_list_of_places_is_one_line(tmp_path):
    (tmp_path / "logs.json").write_text("{")
    with pytest.raises(InputError, match=r"logs\.json is damaged"):
        _ = Place(tmp_path, "wandb:faces").known
