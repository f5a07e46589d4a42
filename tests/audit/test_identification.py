"""Who is found behind released vectors, on identities that are drawn."""

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.audit.identification import identification_rate

RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(200, 32))
OWNERS = np.repeat(np.arange(200), 3)
GALLERY = CENTRES[OWNERS] + 0.5 * RNG.normal(size=(600, 32))
ALONE = [np.array([each]) for each in range(200)]


def test_a_centre_by_itself_is_found_and_noise_hides_it() -> None:
    assert identification_rate(CENTRES, ALONE, GALLERY, OWNERS) > 0.99
    noisy = CENTRES + 20 * RNG.normal(size=CENTRES.shape)
    assert identification_rate(noisy, ALONE, GALLERY, OWNERS) < 0.2


def test_a_group_of_s_gives_at_most_top_of_s() -> None:
    members = np.arange(50)
    rate = identification_rate(CENTRES[members].mean(axis=0)[None], [members], GALLERY, OWNERS, top=3)
    assert rate <= 3 / 50


def test_an_identity_is_as_similar_as_its_most_similar_picture() -> None:
    gallery, owners = np.array([[1.0, 0], [-1, 0.1], [0.9, 0.9]]), np.array([7, 7, 3])
    assert identification_rate(np.array([[1.0, 0.1]]), [np.array([7])], gallery, owners, top=1) == 1.0


REFUSED = {
    "nobody": (lambda: identification_rate(CENTRES[:1], [np.array([], int)], GALLERY, OWNERS), "no identity is behind"),
    "owners": (lambda: identification_rate(CENTRES[:1], ALONE[:1], GALLERY, OWNERS[1:]), "as many owners"),
    "width": (lambda: identification_rate(CENTRES[:1, 1:], ALONE[:1], GALLERY, OWNERS), "of one width"),
    "top": (lambda: identification_rate(CENTRES[:1], ALONE[:1], GALLERY, OWNERS, top=0), "top must be"),
    "zero": (lambda: identification_rate(0 * CENTRES[:1], ALONE[:1], GALLERY, OWNERS), "released vector 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_one_line(name: str) -> None:
    call, words = REFUSED[name]
    with pytest.raises(InputError) as caught:
        call()
    assert words in str(caught.value)
