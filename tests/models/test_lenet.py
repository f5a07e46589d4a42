"""The LeNet of the reference code: its size, its shape, its independence of other examples."""

import pytest
import torch

from sfumato import models
from sfumato._check import InputError


def test_lenet_has_the_papers_parameter_count():
    count = {name: p.numel() for name, p in models.lenet().named_parameters()}
    assert sum(count.values()) == 453_632
    assert sum(n for name, n in count.items() if name.startswith("conv")) == (25 + 1) * 32 + (25 * 32 + 1) * 64


@pytest.mark.parametrize("size", [28, 29, 30, 31, (17, 40), 1])
def test_any_image_size_gives_one_embedding_an_image(size):
    height, width = size if isinstance(size, tuple) else (size, size)
    out = models.lenet(16, 3, size)(torch.randn(2, 3, height, width))
    assert out.shape == (2, 16)


def test_an_embedding_does_not_depend_on_the_other_images():
    model = models.lenet()
    images = torch.randn(5, 1, 28, 28)
    with torch.no_grad():
        alone = torch.cat([model(image[None]) for image in images])
        assert torch.allclose(model(images), alone, atol=1e-5)


def test_pooling_before_the_activation_is_the_reference_order():
    model = models.lenet()
    x = torch.randn(3, 1, 28, 28)
    pool, relu = torch.nn.MaxPool2d(2, ceil_mode=True), torch.relu
    reference = model.embedding(pool(relu(model.conv2(pool(relu(model.conv1(x)))))).flatten(1))
    assert torch.equal(model(x), reference)


def test_a_generator_fixes_the_weights_and_the_global_state_does_not_matter():
    first = models.lenet(generator=torch.Generator().manual_seed(3)).state_dict()
    torch.rand(7)
    second = models.lenet(generator=torch.Generator().manual_seed(3)).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = models.lenet(generator=torch.Generator().manual_seed(4)).state_dict()
    assert not torch.equal(first["conv1.weight"], other["conv1.weight"])


def test_images_of_another_shape_are_refused_in_one_line():
    with pytest.raises(InputError, match=r"reads images \[n, 1, 28, 28\].*got \[2, 3, 28, 28\]") as error:
        models.lenet()(torch.zeros(2, 3, 28, 28))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("arguments", [{"embedding_dim": 0}, {"in_channels": 0}, {"image_size": 0}])
def test_sizes_below_one_are_refused(arguments):
    with pytest.raises(InputError, match="whole number >= 1"):
        models.lenet(**arguments)
