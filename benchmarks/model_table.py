"""Which networks of transformers and torch can be trained privately, as they are: sfumato next to Opacus.

    python benchmarks/model_table.py [--quick] [--json FILE] [--only NAME ...]

Each network is small and random, and nothing is downloaded; `tests/architectures.py` builds them. The columns:

- `check-model`: what `sfumato check-model` tries: the layers, then the model on the records.
- `fit`: two steps of `DPSGD.fit`.
- `loop`: two steps of a loop of one's own (`DPSGD.open`) over a torch data set.
- `exact`: each example's gradient is that of autograd for it alone (largest difference beyond 0.1 %: no).
- `Opacus`: its `ModuleValidator`, `GradSampleModule` and one backward pass; and the same comparison with autograd.

`fixed` in place of a refusal: refused by name as it is, and taken once `models.fix_model` has replaced what it can.
`--quick` tries ten networks.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from opacus.grad_sample import GradSampleModule
from opacus.validators import ModuleValidator
from torch import nn
from torch.utils.data import TensorDataset

from sfumato._check import InputError
from sfumato.central import DPSGD, ExampleContribution
from sfumato.models import fix_model
from sfumato.per_example import Recording, covered, problems

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from architectures import ARCHITECTURES, Architecture

QUICK = ("BERT", "GPT-2", "Llama", "T5", "ViT", "ResNet (batch norm)", "MLP", "LSTM", "CNN, batch norm", "BERT, LoRA")
EXAMPLES = 4
LARGEST = 1e-3
YES, FIXED = "yes", "fixed"


def reason(error: Exception) -> str:
    """An error in a line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def check_model(one: Architecture, model: nn.Module) -> None:
    """As the command does it."""
    found = problems(model)
    if found:
        raise InputError(f"layer {found[0][0]!r}: {found[0][1]}")
    ExampleContribution(model=model, data=one.data(), loss=one.loss)


def fit(one: Architecture, model: nn.Module) -> None:
    """Two private steps."""
    own = {"loss": one.loss} if one.task == "own" else {}
    one.plan().fit(model, one.data(), **own)


def loop(one: Architecture, model: nn.Module) -> None:
    """Two private steps of a loop of one's own."""
    inputs, targets = one.batch()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    plan = DPSGD(steps=2, cohort=EXAMPLES, examples={"micro_batch": 2}, noise=1.0, seed=0)
    with plan.open(model, optimizer, TensorDataset(*inputs, targets)) as private:
        for *some, wanted in private:
            private.backward(one.losses(model, tuple(some), wanted))


def without_dropout(model: nn.Module) -> nn.Module:
    """In training mode, in which Opacus records, with nothing drawn: autograd would draw other numbers."""
    for layer in model.train().modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
        for name, value in vars(layer).items():
            if "drop" in name and isinstance(value, float):
                setattr(layer, name, 0.0)
    return model


def expected(one: Architecture, model: nn.Module) -> dict[str, torch.Tensor]:
    """Autograd's gradients, each example alone, by the parameter's name."""
    inputs, targets = one.batch()
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    rows = []
    for at in range(EXAMPLES):
        loss = one.losses(model, tuple(each[at : at + 1] for each in inputs), targets[at : at + 1]).sum()
        found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        rows.append([torch.zeros_like(p) if g is None else g for p, g in zip(parameters.values(), found, strict=True)])
    return {name: torch.stack(column) for name, column in zip(parameters, zip(*rows, strict=True), strict=True)}


def refuse_difference(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    """Raise where one is not the other."""
    whole = torch.stack([value.norm() for value in wanted.values()]).norm()
    for name, value in wanted.items():
        difference = float((found[name].view_as(value) - value).norm())
        if not difference <= LARGEST * float(value.norm()) + 1e-5 * float(whole):
            raise ValueError(f"gradient of {name} differs by {difference:.3g} of {float(value.norm()):.3g}")


def exact(one: Architecture, model: nn.Module) -> None:
    """The engine against autograd."""
    without_dropout(model)
    inputs, targets = one.batch()
    with Recording(covered(model), examples=EXAMPLES) as recording:
        recording.backward(one.losses(model, tuple(each[:EXAMPLES] for each in inputs), targets[:EXAMPLES]))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    gradients = zip(recording.parameters, recording.per_example(), strict=True)
    refuse_difference({names[id(parameter)]: gradient for parameter, gradient in gradients}, expected(one, model))


def opacus(one: Architecture, model: nn.Module) -> None:
    """Validated, wrapped, one backward pass, and against autograd."""
    errors = ModuleValidator.validate(without_dropout(model), strict=False)
    if errors:
        raise errors[0]
    inputs, targets = one.batch()
    inputs = tuple(each.contiguous() for each in inputs)  # other strides it reads wrongly
    wanted = expected(one, model)
    wrapped = GradSampleModule(model, loss_reduction="sum")
    one.losses(wrapped, tuple(each[:EXAMPLES] for each in inputs), targets[:EXAMPLES]).sum().backward()  # type: ignore[arg-type]
    found = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            sample: Any = getattr(parameter, "grad_sample", None)
            if isinstance(sample, list):
                sample = torch.stack(sample).sum(dim=0)
            found[name] = torch.zeros_like(wanted[name]) if sample is None else sample
            if len(found[name]) != EXAMPLES:
                raise ValueError(f"gradients of {name} are for {len(found[name])} examples, not {EXAMPLES}")
    refuse_difference(found, wanted)


def tried(
    what: Callable[[Architecture, nn.Module], None], one: Architecture, repair: Callable[[nn.Module], nn.Module] | None
) -> tuple[str, str]:
    """Yes, fixed or no; and why not."""
    try:
        what(one, one.model())
        return YES, ""
    except Exception as error:  # whatever another library raises
        why = reason(error)
    if repair is not None:
        try:
            what(one, repair(one.model()))
            return FIXED, why
        except Exception:  # then the first refusal is reported
            pass
    return "no", why


def fixed_by_us(model: nn.Module) -> nn.Module:
    """By `fix_model`, if it changes anything."""
    found, changes = fix_model(model)
    if not changes:
        raise InputError("nothing is replaced")
    return found


COLUMNS: dict[str, tuple[Callable[[Architecture, nn.Module], None], Callable[[nn.Module], nn.Module]]] = {
    "check-model": (check_model, fixed_by_us),
    "fit": (fit, fixed_by_us),
    "loop": (loop, fixed_by_us),
    "exact": (exact, fixed_by_us),
    "Opacus": (opacus, ModuleValidator.fix),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="*")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    print(f"| network | from | {' | '.join(COLUMNS)} |\n|{' --- |' * (2 + len(COLUMNS))}")
    for name, one in ARCHITECTURES.items():
        if (given.only and name not in given.only) or (given.quick and name not in QUICK):
            continue
        row: dict[str, Any] = {"name": name, "library": one.library}
        for column, (what, repair) in COLUMNS.items():
            row[column], row[f"{column}: why"] = tried(what, one, repair)
        rows.append(row)
        print(f"| {name} | {one.library} | {' | '.join(row[column] for column in COLUMNS)} |", flush=True)
    print(f"\n{len(rows)} networks: ", end="")
    taken = {column: [sum(row[column] == word for row in rows) for word in (YES, FIXED)] for column in COLUMNS}
    print("; ".join(f"{column} {yes} as they are, {fixed} once fixed" for column, (yes, fixed) in taken.items()))
    print("\nwhy not:")
    for row in rows:
        for column in COLUMNS:
            if row[f"{column}: why"]:
                print(f"- {row['name']}, {column}: {row[f'{column}: why'][:200]}")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
