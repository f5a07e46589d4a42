"""The help of --model lists the networks of the catalogue."""

import re

import pytest

from sfumato.cli.models import ClassifierOptions, ModelOptions, reads
from sfumato.models import BACKBONES, CLASSIFIERS, LANGUAGE_MODELS, RECOMMENDERS

NAMES = {ModelOptions: BACKBONES + LANGUAGE_MODELS + RECOMMENDERS, ClassifierOptions: CLASSIFIERS + RECOMMENDERS}


@pytest.mark.parametrize("options", NAMES, ids=lambda options: options.__name__)
def test_the_help_names_every_network(options):
    assert set(NAMES[options]) <= set(re.findall(r"\w+", options.__doc__))


def test_pictures_are_those_classifiers_that_read_nothing_else():
    of_pictures = {name for name in CLASSIFIERS if (reads(name) or "").startswith("pictures")}
    assert of_pictures == {"lenet5", "resnet18", "resnet20", "wrn16_4", "scatternet"}
    assert reads("networks:mine") is None
