"""Layers that published weights do not have: trained, or refused; never random and frozen."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from sfumato import models

SMALL = ("--noise", 1, "--rounds", 1, "--cohort", 2, "--cohort.users-per-client", 2)
SQUEEZENET = ("--model", "squeezenet", "--channels", 3)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SqueezeNet's features and classifier, under torchvision's names."""
    model = models.squeezenet(None, 3, generator=torch.Generator().manual_seed(0))
    tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
    tensors |= {"classifier.1.weight": torch.zeros(10, 512, 1, 1), "classifier.1.bias": torch.zeros(10)}
    file = tmp_path_factory.mktemp("weights") / "squeezenet.safetensors"
    save_file(tensors, file)
    return file


def words(people: Path, published: Path, *more: object) -> tuple[object, ...]:
    return ("fedemb", "--data", people, *SMALL, *SQUEEZENET, "--weights", published, "--dry-run", *more)


@pytest.mark.parametrize(
    ("trainable", "named", "remedy"),
    [
        ("last", "features.0.weight", "--trainable 'last+first'"),
        ("first", "embedding.weight", "--trainable 'first+last'"),
        ("last_blocks:2", "features.0.weight, embedding.weight", "--trainable 'last_blocks:2+first+last'"),
        ("features.12", "features.0.weight, embedding.weight", "--trainable 'features.12+first+last'"),
    ],
)
def test_a_new_layer_that_nobody_trains_is_refused_with_what_trains_it(
    sfumato, people: Path, published: Path, trainable: str, named: str, remedy: str
):
    line = sfumato(*words(people, published, "--trainable", trainable)).line
    assert f"has nothing for {named}, which --trainable {trainable} would leave frozen at random values" in line
    assert remedy in line
    assert ("--size 64" in line) == ("features.0" in named)
    told = sfumato(*words(people, published, "--trainable", remedy.split("'")[1]))
    assert told.code == 0, told.err


def test_larger_pictures_have_the_first_layer_of_the_file(sfumato, people: Path, published: Path):
    assert sfumato(*words(people, published, "--trainable", "last", "--size", 64)).code == 0


def test_a_random_embedding_before_a_projection_is_refused(sfumato, people: Path, published: Path):
    given = ("--size", 64, "--projection", 8, "--trainable")
    line = sfumato(*words(people, published, *given, "projection")).line
    assert "has nothing for backbone.embedding.weight" in line
    assert r"--trainable 'projection|backbone\.embedding\.'" in line
    assert "leave out --projection" in line
    assert sfumato(*words(people, published, *given, r"projection|backbone\.embedding\.")).code == 0
    assert "projection.weight" in sfumato(*words(people, published, *given, "last_blocks:1")).line


def test_a_random_layer_under_an_adapter_is_refused(sfumato, people: Path, published: Path):
    given = ("--size", 64, "--lora-rank", 2, "--trainable", "lora+last")
    line = sfumato(*words(people, published, *given)).line
    assert "has nothing for embedding.weight" in line
    assert "adapt the other layers only (--lora-layers '^(?!(embedding)$)') and train it whole" in line
    assert sfumato(*words(people, published, *given, "--lora-layers", "^(?!(embedding)$)")).code == 0


def test_nothing_is_refused_where_all_is_trained_or_nothing_was_loaded(sfumato, people: Path, published: Path):
    assert sfumato(*words(people, published)).code == 0
    assert sfumato("fedemb", "--data", people, *SMALL, "--trainable", "last", "--dry-run").code == 0


def test_a_classifier_whose_classes_are_new_trains_its_last_layer(sfumato, people: Path, tmp_path: Path):
    model = models.classifier("lenet300_100", 3, [(12, 12, 1)])
    file = tmp_path / "other.safetensors"
    models.save_weights(model, file)
    given = ("dpsgd", "--data", people, "--model", "lenet300_100", "--pretrained", file, "--noise", 1)
    steps = ("--steps", 1, "--cohort", 2, "--public-classes", "--dry-run", "--trainable")
    assert "has nothing for" in sfumato(*given, *steps, "first").line
    assert sfumato(*given, *steps, "first+last").code == 0
