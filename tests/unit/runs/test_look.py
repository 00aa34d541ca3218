"""What a file is taken for that nobody has described: its question and its target, by its kind."""

import numpy as np
import pandas as pd
import pytest

from distfms.data.files.dataset import open_dataset
from distfms.data.files.formats.copies import Copies
from distfms.runs.look import look_at
from distfms.runs.starter import answerable

N = 60
RNG = np.random.default_rng(0)
KINDS = {
    "number": lambda: RNG.normal(size=N).round(3),
    "comma": lambda: [f"{value:.2f}".replace(".", ",") for value in RNG.normal(size=N)],
    "euro": lambda: [f"{value},00 €" for value in RNG.integers(100, 900, N)],
    "percent": lambda: [f"{value} %" for value in RNG.integers(100, size=N)],
    "amount": lambda: RNG.permutation(N) * 700 + 1000,
    "grade": lambda: RNG.integers(1, 6, N),
    "two": lambda: RNG.choice(["yes", "no"], N),
    "three": lambda: RNG.choice(["a", "b", "c"], N),
    "names": lambda: [f"name {number}" for number in range(N)],
    "days": lambda: [f"2024-{1 + number % 12:02}-17" for number in range(N)],
    "query": lambda: np.repeat(np.arange(N // 5), 5),
    "row": lambda: np.arange(N),
}


def table(names):
    return pd.DataFrame({name: KINDS[kind]() for name, kind in names.items()})


def judgments(**names):
    """Rows of 20 objects, 3 attributes and 2 raters; labels are what objects have."""
    truth = RNG.normal(size=20).round(1)
    columns = {
        "object": [f"o{number // 6}" for number in range(120)],
        "attribute": ["warm", "loud", "overall"] * 40,
        "rater": ["r1", "r1", "r1", "r2", "r2", "r2"] * 20,
        "value": RNG.integers(1, 6, 120),
        "label": np.repeat(truth, 6),
    }
    return pd.DataFrame({name: columns[role] for role, name in names.items()})


def wide(form):
    truth = RNG.normal(size=(N, 2))
    columns = {}
    for attribute, name in enumerate(("fruity", "dry")):
        for number in (1, 2, 3):
            columns[form.format(name, number)] = truth[:, attribute] + RNG.normal(size=N)
    return pd.DataFrame(columns).assign(price=truth.sum(axis=1))


@pytest.mark.parametrize(
    ("frame", "method", "target"),
    [
        (table({"SalePrice": "number", "rooms": "grade", "sea": "two"}), "sequence", "SalePrice"),
        (table({"species": "three", "bill": "number", "sex": "two"}), "sequence", "species"),
        (table({"bmi": "number", "Diabetes": "two", "rate": "percent"}), "sequence", "Diabetes"),
        (table({"age": "grade", "y": "number", "Store": "three"}), "sequence", "y"),
        (table({"Sales": "amount", "Open": "two", "Promo": "two"}), "sequence", "Sales"),
        (table({"median_value": "number", "near": "three"}), "sequence", "median_value"),
        (table({"precio": "comma", "barrio": "three"}), "sequence", "precio"),
        (table({"prix": "comma", "ville": "three"}), "sequence", "prix"),
        (table({"Umsatz": "comma", "Kündigung": "two"}), "sequence", "Kündigung"),
        (table({"Marke": "three", "Betrag": "euro", "km": "number"}), "sequence", "Betrag"),
        (table({"spend": "number", "clicks": "row", "conversions": "grade"}), "sequence",
         "conversions"),
        (table({"name": "names", "day": "days", "a": "number", "late": "two"}), "sequence", "late"),
        (table({"customerID": "names", "a": "number", "b": "number"}), "sequence", "b"),
        (table({"srch_id": "query", "position": "grade", "booking_bool": "two"}), "landmarks",
         "booking_bool"),
        (table({"query": "query", "bm25": "number", "relevance": "grade"}), "landmarks",
         "relevance"),
        (table({f"{number}. Do you like it?": "grade" for number in range(6)}), "sequence",
         "5. Do you like it?"),
        (wide("{}_{}"), "multiselect", "price"),
        (wide("{}{}"), "multiselect", "price"),
        (wide("{} ({})"), "multiselect", "price"),
        (table({f"sensor{number}": "number" for number in range(6)}), "sequence", "sensor5"),
        (judgments(object="item", attribute="question", rater="rater", value="score"),
         "multiselect", "overall"),
        (judgments(object="stimulus", attribute="trait", value="rating"), "multiselect", "overall"),
        (judgments(label="human_rating", object="essay", attribute="rubric", rater="model",
                   value="score"), "multiselect", "overall"),
        (judgments(label="Preis", object="Wein", attribute="Merkmal", rater="Bewerter",
                   value="Wert"), "multiselect", "overall"),
    ],
)  # fmt: skip
def test_question_and_target_of_a_kind(frame, method, target, tmp_path):
    frame.to_csv(tmp_path / "table.csv", index=False, sep=";")
    look = look_at(open_dataset(tmp_path / "table.csv", copies=Copies(folder=tmp_path / "copies")))
    assert next(iter(answerable(look))) == method
    assert (look.label if look.long else look.target.name) == target
    if look.long:
        roles = {"object": "item stimulus essay Wein", "value": "score rating Wert"}
        assert all(look.long[role] in names.split() for role, names in roles.items())
        assert look.label_column in ("human_rating", "Preis", None)


@pytest.mark.parametrize(
    ("values", "has_classes"),
    [
        (RNG.poisson(1.3, 400), False),
        (RNG.choice(range(1, 6), 400, p=[0.05, 0.1, 0.2, 0.4, 0.25]), False),
        (RNG.integers(0, 10, 400), True),
        (RNG.choice([1, 2, 3, 5, 6, 7], 400, p=[0.33, 0.36, 0.08, 0.06, 0.04, 0.13]), True),
        (RNG.integers(0, 3, 400), True),
    ],
    ids=["counts", "ratings", "digits", "kinds of glass", "three classes"],
)
def test_counts_and_ratings_are_numbers_and_codes_are_classes(values, has_classes, tmp_path):
    table = pd.DataFrame({"a": RNG.normal(size=400), "y": values})
    table.to_parquet(tmp_path / "table.parquet")
    assert look_at(open_dataset(tmp_path / "table.parquet")).target.has_classes == has_classes
