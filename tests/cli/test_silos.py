"""`sfumato privacyface`: from the pictures of several organisations to a model, a ledger and a statement."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

RUN = [
    "--rounds",
    "2",
    "--sharing.threshold",
    "3",
    "--sharing.groups",
    "3",
    "--sharing.dimensions",
    "4",
    "--far",
    "0.1",
]
SMALL = ["--embedding-dim", "8", "--cohort", "2", "--cohort.users-per-client", "4", "--seed", "1"]


def pictures(path: Path, names: list[str], seed: int) -> Path:
    """An npz of a few pictures for each identity."""
    rng = np.random.default_rng(seed)
    base = np.repeat(rng.integers(0, 256, (len(names), 28, 28, 1)), 3, axis=0)
    inputs = np.clip(base + rng.normal(0, 20, base.shape), 0, 255).astype(np.uint8)
    np.savez(path, images=inputs, users=np.repeat(names, 3), labels=np.repeat(np.arange(len(names)), 3))
    return path


@pytest.fixture
def people(tmp_path: Path) -> dict[str, Path]:
    made = {
        name: [f"{name} {n:02d}" for n in range(count)]
        for name, count in {"north": 14, "south": 12, "public": 12, "test": 8}.items()
    }
    made["south"][0] = "North_03"  # a person whom two sources name in different ways
    return {name: pictures(tmp_path / f"{name}.npz", names, seed) for seed, (name, names) in enumerate(made.items())}


@pytest.fixture
def words(people) -> list[str]:
    return [
        *("privacyface", "--data", str(people["north"]), str(people["south"]), "--public", str(people["public"])),
        *("--test", str(people["test"]), *RUN, *SMALL),
    ]


def test_a_private_run_of_two_organisations_fits_together(sfumato, words, tmp_path) -> None:
    run = tmp_path / "run"
    done = sfumato(*words, "--epsilon", "8", "--out", run, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["statement"]["unit"] == "identity"
    assert 7.9 < told["statement"]["epsilon"] <= 8.0
    assert told["statement"]["population"] == 26
    assert set(told["directions"]) == {"north.npz", "south.npz"}
    assert told["bytes_besides"] == 2 * 4 * (8 + 2)
    assert "recall_at_far" in told["evaluation"]["trained"]
    assert sfumato("ledger", "verify", run).code == 0
    assert sfumato("report", run).code == 0
    again = sfumato("privacyface", "--resume", run, "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["already"]


@pytest.mark.parametrize(("silos", "said"), [("1", "No person is an identity of more"), ("2", "may hold the same")])
def test_a_statement_names_what_silos_release_and_whom_each_trusts(sfumato, words, silos, said) -> None:
    done = sfumato(*words, "--epsilon", "8", "--silos", silos, "--dry-run", "--json")
    assert done.code == 0, done.err
    statement = json.loads(done.out)["statement"]
    assert "adds the noise before anything leaves it" in statement["disclosure"]["trust_model"]
    assert "its clusters and noisy updates" in statement["disclosure"]["released"]
    assert sum(said in json.dumps(line) for line in statement["assumptions"]) == 1
    assert ("is in one of 2 silos" in json.dumps(statement["assumptions"])) is (silos == "1")


def test_a_cohort_larger_than_the_smallest_silo_is_refused_with_its_size(sfumato, words) -> None:
    done = sfumato(*words, "--epsilon", "8", "--cohort", "4", "--dry-run")
    assert done.code == 2
    assert "4 clients × 4 identities = 16 identities a round, but the smallest silo has 12" in done.err


def test_a_test_on_people_of_a_silo_is_refused_in_a_dry_run_as_well(sfumato, people) -> None:
    words = ["privacyface", "--data", people["north"], people["south"], "--public", people["public"], *RUN, *SMALL]
    line = sfumato(*words, "--test", people["south"], "--dry-run").line
    assert "'North_03' is in the test data and an identity of south.npz; leave it out of one" in line


def faces(path: Path, names: list[str], seed: int) -> Path:
    """A folder for each identity."""
    rng = np.random.default_rng(seed)
    for name in names:
        (path / name).mkdir(parents=True)
        for number in range(3):
            Image.fromarray(rng.integers(0, 256, (28, 28), dtype=np.uint8)).save(path / name / f"{number}.png")
    return path


def test_tables_and_folders_may_be_silos_of_one_run(sfumato, people, tmp_path) -> None:
    rows = faces(tmp_path / "rows", [f"row {n}" for n in range(12)], 7)
    listed = [{"person": file.parent.name, "file": str(file)} for file in sorted(rows.glob("*/*.png"))]
    pq.write_table(pa.Table.from_pylist(listed), tmp_path / "rows.parquet")
    folder, public = (
        faces(tmp_path / "folder", [f"f {n}" for n in range(12)], 8),
        faces(tmp_path / "more", ["x", "y"], 9),
    )
    words = ["privacyface", "--data", tmp_path / "rows.parquet", folder, "--public", public, "--user", "person", *SMALL]
    done = sfumato(*words, "--sharing", "backbone", "--channels", "1", "--dry-run")
    assert done.code == 0, done.err
    assert "rows.parquet: 12 identities" in done.out
    (tmp_path / "none").mkdir()
    refused = sfumato("privacyface", "--data", folder, tmp_path / "none", *SMALL, "--dry-run")
    assert refused.code == 2
    assert "none is none of: a packed store" in refused.err
    assert "--text" not in refused.err


def test_identities_without_a_silo_are_counted(sfumato, tmp_path) -> None:
    files = sorted(faces(tmp_path / "rows", [f"row {n:02d}" for n in range(26)], 7).glob("*/*.png"))
    silo = [None if n < 6 else f"silo {n // 3 % 2}" for n in range(len(files))]
    listed = [{"person": f.parent.name, "file": str(f), "place": at} for f, at in zip(files, silo, strict=True)]
    pq.write_table(pa.Table.from_pylist(listed), tmp_path / "rows.parquet")
    words = ["privacyface", "--data", tmp_path / "rows.parquet", "--user", "person", "--input", "file", *SMALL]
    words += ["--sharing", "backbone", "--channels", "1", "--dry-run"]
    done = sfumato(*words, "--silo-of", "place")
    assert done.code == 0, done.err
    assert "left out: 2 identities that --silo-of puts into no silo" in done.out
    refused = sfumato(*words, "--silo-of", "town")
    assert refused.code == 2
    assert "rows.parquet has no column 'town'; it has person, file, place" in refused.err


def test_without_a_budget_the_clusters_alone_are_covered(sfumato, words, tmp_path) -> None:
    done = sfumato(*words, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "The clusters alone are covered" in " ".join(done.out.split())
    assert "bytes sent" in done.out


def test_a_dry_run_says_whether_clusters_can_be_released_and_writes_nothing(sfumato, words, tmp_path) -> None:
    before = set(tmp_path.iterdir())
    done = sfumato(*words, "--epsilon", "8", "--dry-run", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "a group needs about" in done.out
    assert "in the densest cap" in done.out
    assert "south.npz's 12" in done.out
    assert "forecast: At ε = 8 with 26 identities" in done.out
    wide = sfumato(*words, "--sharing.epsilon", "0.5", "--dry-run")
    assert "raise --sharing.epsilon, or take fewer --sharing.dimensions" in " ".join(wide.out.split())
    assert set(tmp_path.iterdir()) == before
    narrow = sfumato(*words, "--sharing.radius", "0.05", "--sharing.threshold", "12", "--dry-run")
    assert narrow.code == 0, narrow.err
    assert "no silo is likely to release a cluster" in narrow.out


@pytest.mark.slow
def test_a_run_without_a_cluster_reports_it(sfumato, words, tmp_path) -> None:
    strict = ["--sharing.radius", "0.05", "--sharing.threshold", "12", "--sharing.epsilon", "60"]
    done = sfumato(*words, *strict, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "no cluster was large enough" in done.out


def test_a_run_whose_silos_were_offline_when_clusters_are_released_reports_it(sfumato, words, tmp_path) -> None:
    policy = ["--drop-out", "0.9", "--drop-out-silos", "2"]  # both are offline in both rounds of this seed
    done = sfumato(*words, *policy, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "all silos were offline in the rounds of --sharing.at" in done.out
    assert "no cluster was large enough" not in done.out


def test_who_is_in_two_sources_is_dropped_from_the_later_one(sfumato, words, tmp_path) -> None:
    names = tmp_path / "overlap.csv"
    names.write_text("person_id,cfp,lfw\n1,north 03,North_03\n2,north 04,\n3,,public 01\n")
    done = sfumato(*words, "--drop", names, "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["statement"]["population"] == 25
    shown = sfumato(*words, "--drop", names, "--dry-run")
    assert "dropped: 1 identities" in shown.out


def test_a_list_of_other_names_drops_no_one_and_is_refused(sfumato, words, tmp_path) -> None:
    names = tmp_path / "overlap.csv"
    names.write_text("person_id,cfp,lfw\n1,N03,N_03\n")
    done = sfumato(*words, "--drop", names, "--dry-run")
    assert done.code == 2
    assert "overlap.csv names none of the identities, as north 00; correct it, or leave it out" in done.err


@pytest.mark.slow
def test_one_data_set_is_divided_by_a_table(sfumato, people, tmp_path) -> None:
    rows = [f"north {n:02d},{'a' if n < 6 else 'b'}" for n in range(12)]
    table = tmp_path / "silos.csv"
    table.write_text("user,silo\n" + "\n".join(rows) + "\n")
    words = ["privacyface", "--data", people["north"], "--public", people["public"], *RUN, *SMALL]
    done = sfumato(*words, "--silo-of", table, "--dry-run")
    assert done.code == 0, done.err
    assert "a: 6 identities, 18 pictures" in done.out
    assert "b: 6 identities, 18 pictures" in done.out
    dealt = sfumato(*words, "--deal", "2", "--dry-run")
    assert dealt.code == 0, dealt.err
    assert "silo 1: " in dealt.out


@pytest.mark.slow
def test_a_column_of_the_data_names_the_silo(sfumato, tmp_path) -> None:
    rows = ["path,who,site"]
    for identity in range(12):
        for number in range(2):
            name = f"{identity}-{number}.png"
            pixels = np.random.default_rng(100 * identity + number).integers(0, 256, (28, 28), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name)
            rows.append(f"{name},p{identity:02d},{'east' if identity % 2 else 'west'}")
    table = tmp_path / "faces.csv"
    table.write_text("\n".join(rows) + "\n")
    words = ["privacyface", "--data", table, "--user", "who", "--input", "path", "--sharing", "backbone", *SMALL]
    done = sfumato(*words, "--silo-of", "site", "--dry-run")
    assert done.code == 0, done.err
    assert "east: 6 identities, 12 pictures" in done.out
    wrong = sfumato(*words, "--silo-of", "town", "--dry-run")
    assert "needs columns who and town" in wrong.line
    table.write_text("\n".join([*rows[:-1], "11-1.png,p11,west"]) + "\n")
    assert "is in two silos" in sfumato(*words, "--silo-of", "site", "--dry-run").line


REFUSED = {
    "no data": (lambda p: [], "--silo-of or --deal"),
    "one silo": (lambda p: ["--data", p["north"], "--deal", "1"], "deal"),
    "undivided": (lambda p: ["--data", p["north"]], "--silo-of or by --deal"),
    "several divided": (lambda p: ["--data", p["north"], p["south"], "--deal", "2"], "divide one data set"),
    "nothing there": (lambda p: ["--data", p["north"], "nowhere"], "nowhere"),
    "no public": (lambda p: ["--data", p["north"], p["south"]], "--public"),
    "private as public": (lambda p: ["--data", p["north"], p["south"], "--public", p["north"]], "is public and"),
    "one twice": (lambda p: ["--data", p["north"], p["north"], "--public", p["public"]], "two silos"),
    "few": (
        lambda p: ["--data", p["north"], p["south"], "--public", p["public"], "--sharing.threshold", "13"],
        "sharing.threshold",
    ),
    "radius": (
        lambda p: ["--data", p["north"], p["south"], "--public", p["public"], "--sharing.radius", "4"],
        "radius",
    ),
    "offline": (
        lambda p: [
            *("--data", p["north"], p["south"], "--public", p["public"]),
            *("--drop-out", "1", "--drop-out-silos", "2"),
        ],
        "offline",
    ),
    "both budgets": (
        lambda p: ["--data", p["north"], p["south"], "--public", p["public"], "--epsilon", "8", "--noise", "1"],
        "--epsilon",
    ),
    "below the clusters": (
        lambda p: ["--data", p["north"], p["south"], "--public", p["public"], "--epsilon", "1"],
        "sharing.epsilon",
    ),
    "no table": (lambda p: ["--data", p["north"], "--silo-of", "absent.csv", "--public", p["public"]], "absent.csv"),
    "no list": (
        lambda p: ["--data", p["north"], p["south"], "--public", p["public"], "--drop", "absent.csv"],
        "absent.csv",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_of_no_use_is_refused_in_one_line(sfumato, people, name, tmp_path) -> None:
    given, message = REFUSED[name]
    done = sfumato("privacyface", *RUN, *SMALL, *given(people), "--out", tmp_path / "run")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert message in done.err
    assert not (tmp_path / "run").exists()
