"""Inputs with names go into the model's arguments of these names: as models of transformers take them."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import BertConfig, BertForSequenceClassification

from sfumato import models
from sfumato._check import InputError
from sfumato.central import DPSGD
from sfumato.central.losses import cross_entropy
from sfumato.data import ExampleDataset, examples_from_arrays, open_examples, write_examples

PLAN = DPSGD(steps=3, batch_size=12, micro_batch=6, noise_multiplier=1.0, learning_rate=0.1, momentum=0.0, seed=3)


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
    fitted = PLAN.fit(bert(), texts(), test=texts())
    assert 0 <= fitted.evaluation["trained"]["accuracy"] <= 1

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, place):
            return {name: rows[place] for name, rows in arrays().items()}, labels()[place]

    model = bert()
    plan = DPSGD(steps=3, batch_size=12, micro_batch=6, noise_multiplier=1.0, seed=3)
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
        PLAN.fit(Wrapped(how), data, loss=cross_entropy, test=data).evaluation
        for how in (lambda y: y, lambda y: (y,), lambda y: {"scores": y})
    )
    assert all(other == plain for other in others)


@pytest.mark.parametrize("wrong", ["atention_mask", "x"])
def test_a_name_that_the_model_does_not_take_is_refused_with_those_that_it_takes(wrong):
    data = dataclasses.replace(texts(), input_names=(wrong, "input_ids"))
    with pytest.raises(InputError, match=f"no input '{wrong}'; its forward takes input_ids, attention_mask") as error:
        PLAN.fit(bert(), data)
    assert "\n" not in str(error.value)


def test_a_wrapper_that_passes_its_keywords_on_takes_the_names_of_what_is_within():
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = bert()

        def forward(self, **keywords):
            return self.inner(**keywords)

    PLAN.fit(Wrapper(), texts())
    with pytest.raises(InputError, match="no input 'attention'"):
        PLAN.fit(Wrapper(), dataclasses.replace(texts(), input_names=("attention", "input_ids")))


@pytest.mark.parametrize("names", [("a",), ("a", "a"), ("a", "b c")])
def test_names_that_are_not_a_keyword_for_each_input_are_refused(names):
    with pytest.raises(InputError, match="name"):
        dataclasses.replace(texts(), input_names=names)


def test_names_stay_in_parts_and_stores_and_tell_one_data_set_from_another(tmp_path: Path):
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
    PLAN.fit(model, data)
    models.use_public_batch(model, torch.from_numpy(x[:9]), torch.from_numpy(scale[:9]))
    with pytest.raises(InputError, match="are training records"):
        PLAN.fit(model, data)
