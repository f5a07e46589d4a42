"""Omniglot (Lake et al., Science 2015): 1,623 characters of 50 alphabets, each by 20 drawers.

It comes as folders of PNG, or as arrays in one npz file. A user is a character (an identity, as in DP-FedEmb's recipes)
or a drawer.
"""

import itertools
import os
import re
from pathlib import Path
from typing import Literal

import numpy as np

from sfumato._check import InputError, one_of
from sfumato.data.files import read_npz, read_npz_keys
from sfumato.data.mapped import Strings
from sfumato.data.pictures import LAYOUTS, folders, is_folder, user_names
from sfumato.data.readers.folders import picture_files
from sfumato.data.records import PICTURES, Reader, Records, RowClasses, some
from sfumato.data.safeguards import name_notes
from sfumato.data.users import UserDataset, from_arrays

OmniglotUser = Literal["character", "drawer"]
"""Who is a user of Omniglot: each character, or each person who drew."""

_OMNIGLOT_FILE = re.compile(r"\d+_(\d+)\.png")
_OMNIGLOT_KEYS = {"images", "character", "alphabet", "drawer", "alphabet_names"}


def omniglot_folder(path: Path, users: OmniglotUser = "character") -> Records:
    """Omniglot's folders: `path/<Alphabet>/character01/0001_01.png`, the last number being the drawer.

    Args:
        path: `images_background` or `images_evaluation`.
        users: "character" or "drawer".

    Returns:
        a class is a character ("Greek/character01"), its group the alphabet.

    Raises:
        InputError: the folder is not laid out like this.
    """
    one_of(("character", "drawer"), users=users)
    alphabets, strays = user_names(path)
    if "images_background" in alphabets:
        raise InputError(f"give one of the folders in it: {path / 'images_background'} or images_evaluation")
    rows: list[tuple[str, str, str]] = []
    for folder in folders(path, alphabets):
        strays += folder.strays
        for kind, file in folder.files:
            match = _OMNIGLOT_FILE.fullmatch(Path(file).name)
            if kind is None or match is None:
                strays.append((file, "is not Omniglot's <Alphabet>/character<n>/<character>_<drawer>.png"))
                continue
            label = f"{folder.name}/{kind}"
            rows.append((label if users == "character" else f"drawer{int(match[1]):02d}", file, label))
    rows.sort()
    names, labels = (sorted({row[place] for row in rows}) for place in (0, 2))
    owner, codes = ({name: place for place, name in enumerate(each)} for each in (names, labels))
    return picture_files(
        path,
        [file for _, file, _ in rows],
        owners=(names, np.array([owner[user] for user, _, _ in rows], np.int64)),
        labelled=RowClasses(
            values=np.array([codes[label] for _, _, label in rows], np.int64),
            names=Strings.from_list(labels),
            groups=Strings.from_list(map(_alphabet, labels)),
            whole=True,
        ),
        strays=strays,
        needs=("users with readable pictures", LAYOUTS),
        options={"users": users},
        channels=1,
    )


def omniglot_npz(path: Path | str, users: OmniglotUser = "character", *, invert: bool = False) -> UserDataset:
    """Omniglot as arrays: images [n, H, W] uint8, character [n], alphabet [n], drawer [n], alphabet_names.

    Args:
        path: the npz file.
        users: "character" or "drawer".
        invert: False: ink is 0 and paper 255, as in the file; True: ink is 255.

    Returns:
        a class is a character ("Greek/character01"), its group the alphabet; both in the file's order.

    Raises:
        InputError: the file is missing, damaged, or has other keys.
    """
    one_of(("character", "drawer"), users=users)
    arrays = read_npz(path)
    if missing := _OMNIGLOT_KEYS - set(arrays):
        raise InputError(f"{path} is not Omniglot's npz: it has no {sorted(missing)[0]}; it has {', '.join(arrays)}")
    _refuse_misfits(path, arrays)
    character, alphabet = arrays["character"].astype(np.int64), arrays["alphabet"].astype(np.int64)
    codes, first, label = np.unique(character, return_index=True, return_inverse=True)
    groups = [str(arrays["alphabet_names"][alphabet[i]]) for i in first]
    seen: dict[str, int] = {}
    names = []
    for group in groups:
        seen[group] = seen.get(group, 0) + 1
        names.append(f"{group}/character{seen[group]:02d}")
    images = 255 - arrays["images"] if invert else arrays["images"]
    if users == "drawer":
        owners = np.char.add("drawer", np.char.zfill(arrays["drawer"].astype(str), 2))
        return from_arrays(images, label, owners, Strings.from_list(names), Strings.from_list(groups))
    order = np.argsort(label, kind="stable")
    return UserDataset(  # users in the file's order, not by name: the alphabets come as in the paper
        inputs=images[order][..., None],
        labels=label[order].astype(np.int64),
        offsets=np.concatenate([[0], np.cumsum(np.bincount(label, minlength=len(codes)))]).astype(np.int64),
        names=Strings.from_list(names),
        num_classes=len(codes),
        label_names=Strings.from_list(names),
        label_groups=Strings.from_list(groups),
        notes=tuple(name_notes(names)),
        places=order,
    )


def _refuse_misfits(path: Path | str, arrays: dict[str, np.ndarray]) -> None:
    """Refuse arrays that do not go together."""
    images = arrays["images"]
    if images.dtype != np.uint8 or images.ndim != 3 or len(images) == 0:
        raise InputError(f"{path}: images must be uint8 [n, height, width], got {images.dtype} {images.shape}")
    for key in ("character", "alphabet", "drawer"):
        if arrays[key].dtype.kind not in "iu" or arrays[key].shape != (len(images),):
            got = f"{arrays[key].dtype} {arrays[key].shape}"
            raise InputError(f"{path}: {key} must be whole numbers, one for each of {len(images)} images, got {got}")
    known = len(arrays["alphabet_names"]) if arrays["alphabet_names"].ndim == 1 else 0
    if arrays["alphabet"].min() < 0 or arrays["alphabet"].max() >= known:
        raise InputError(f"{path}: alphabet must be in 0 … {known - 1}, the positions in alphabet_names")


def is_omniglot_npz(path: object) -> bool:
    """Whether a file is Omniglot's npz."""
    return isinstance(path, Path) and path.suffix == ".npz" and set(read_npz_keys(path)) >= _OMNIGLOT_KEYS


def is_omniglot_folder(path: object) -> bool:
    """Whether a folder looks like `<Alphabet>/character<n>/`."""
    if not isinstance(path, Path) or not path.is_dir():
        return False
    if (path / "images_background").is_dir():
        return True
    with os.scandir(path) as entries:
        some = itertools.islice((entry.path for entry in entries if is_folder(entry)), 3)
        return any(next(Path(folder).glob("character[0-9]*/*_[0-9]*.png"), None) is not None for folder in some)


def _alphabet(label: str) -> str:
    return label.rsplit("/", 1)[0]


FOLDERS = Reader(
    name="Omniglot's folder",
    recognises=lambda source, options: is_omniglot_folder(source),
    read=lambda source, options: omniglot_folder(source, **some(options, "users")),
    endings=(),
    options=PICTURES | {"users", "invert"},
    names_files=True,
)
ARRAYS = Reader(
    name="Omniglot's npz",
    recognises=lambda source, options: is_omniglot_npz(source),
    read=lambda source, options: omniglot_npz(source, **some(options, "users", "invert")),
    endings=(".npz",),
    options=frozenset({"size", "channels", "users", "invert"}),
)
