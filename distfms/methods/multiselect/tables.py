"""Tables of a multi-selection's report, and the reading of its run folder's JSON content."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from distfms.report.content import as_mapping, as_number, curve_points
from distfms.report.measures import without_empty_columns
from distfms.report.page import Column, Table

_TITLES = {"full": "Full", "scoring": "Scoring", "averages": "Averages", "copies": "Copies"}
_PATH_SHOWN = 60
_ATTRIBUTES_SHOWN = 1000
#: A loss of 0 may come out this far below it, in units of the label's variance.
_ROUNDING = 1e-9


def repeats_of(selection: Mapping[str, Any]) -> dict[str, int]:
    """Return judgments by attribute, in the order of first purchase.

    Parameters
    ----------
    selection : mapping
        Content of ``selection.json``.

    Returns
    -------
    dict of str to int
        Attributes that get none are left out.
    """
    bought = {
        str(name): round(r)
        for name, value in (selection.get("repeats") or {}).items()
        if (r := as_number(value)) is not None and r > 0
    }
    order: dict[str, int] = {}
    for step in selection.get("path") or ():
        order.setdefault(str(step.get("attribute")), len(order))
    return dict(sorted(bought.items(), key=lambda item: order.get(item[0], len(order))))


def own_name(selection: Mapping[str, Any]) -> str:
    """Return the name of the algorithm chosen."""
    return str(selection.get("algorithm") or "full")


def own_curve(selection: Mapping[str, Any], metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the curve of the algorithm chosen.

    Parameters
    ----------
    selection, metrics : mapping
        Content of ``selection.json`` and ``metrics.json``.

    Returns
    -------
    mapping
        With ``name`` and ``points``; the path serves where metrics have no such curve.
    """
    name = own_name(selection)
    for curve in metrics.get("curves") or ():
        if curve.get("name") == name:
            return curve
    return {"name": name, "points": selection.get("path") or ()}


def chosen_point(selection: Mapping[str, Any], metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the losses of what is bought in the end.

    Parameters
    ----------
    selection, metrics : mapping
        Content of ``selection.json`` and ``metrics.json``.

    Returns
    -------
    mapping
        A point as curves have them; off the curve where the selection was refined.
    """
    chosen = as_mapping(metrics.get("chosen"))
    points = curve_points(own_curve(selection, metrics))
    return chosen or (points[-1] if points else {})


def held_out_variance(selection: Mapping[str, Any], metrics: Mapping[str, Any]) -> float | None:
    """Return the label's variance among the held-out objects.

    Parameters
    ----------
    selection, metrics : mapping
        Content of ``selection.json`` and ``metrics.json``.

    Returns
    -------
    float or None
        The training objects' where metrics do not tell.
    """
    own = as_number(as_mapping(metrics.get("test")).get("label_variance"))
    return as_number(selection.get("label_variance")) if own is None else own


def is_possible(loss: float, variance: float | None) -> bool:
    """Tell whether an estimated loss is one that a model can have.

    An unbiased estimate falls below zero, where there are too few objects for it to say anything.

    Parameters
    ----------
    loss : float
    variance : float or None
        Of the label, for what rounding may do.
    """
    return loss >= -_ROUNDING * (variance or 0.0)


def explained_share(loss: float | None, variance: float | None) -> float | None:
    """Return the share of the label's variance that a loss leaves explained.

    Parameters
    ----------
    loss, variance : float or None

    Returns
    -------
    float or None
        At most 1; None where a number is missing or the loss is an impossible one.
    """
    if loss is None or not variance or not is_possible(loss, variance):
        return None
    return min(1 - loss / variance, 1.0)


def title_of(curve: Mapping[str, Any]) -> str:
    """Return what the report calls the algorithm or baseline of a curve."""
    name = str(curve.get("name"))
    if name.startswith("single:"):
        return f"only {name.removeprefix('single:').strip()}"
    return _TITLES.get(name, name)


def baseline_tables(selection: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[Table]:
    """Compare the selection with the baselines at the whole budget.

    Parameters
    ----------
    selection, metrics : mapping
        Content of ``selection.json`` and ``metrics.json``. A baseline's losses are taken from
        ``train`` and ``test``, or from ``projected_loss`` and ``test_loss`` of its entry.

    Returns
    -------
    list of Table
        One table, or none where there are no baselines.
    """
    entries = as_mapping(metrics.get("baselines"))
    if not entries:
        return []
    variance = as_number(selection.get("label_variance"))
    own = {
        "validation_loss": chosen_point(selection, metrics).get("validation_loss"),
        "train": metrics.get("train") or selection.get("projected_loss"),
        "test": metrics.get("test"),
        "repeats": selection.get("repeats"),
        "spent": selection.get("spent"),
    }
    others = {name: entry for name, entry in entries.items() if name != own_name(selection)}
    rows = []
    for name, entry in {own_name(selection): own, **others}.items():
        losses = _losses_of(as_mapping(entry))
        best = next((loss for loss in reversed(losses) if loss is not None), None)
        whole = variance if losses[-1] is None else held_out_variance(selection, metrics)
        repeats = as_mapping(as_mapping(entry).get("repeats"))
        rows.append(
            [
                title_of({"name": name}),
                as_number(as_mapping(entry).get("spent")),
                sum(1 for r in repeats.values() if as_number(r)) if repeats else None,
                *losses,
                explained_share(best, whole),
            ]
        )
    columns = [
        Column("Way to spend", "text"),
        Column("Spent", "number"),
        Column("Attributes", "number"),
        Column("Projected loss", "number"),
        Column("Cross-validated", "number"),
        Column("Held out", "number"),
        Column("Variance explained", "percent"),
    ]
    caption = (
        "The selection (bold) and the baselines at the whole budget. The share explained is that "
        "of the last loss in the row, of the label's variance among the same objects."
    )
    return [without_empty_columns(columns, rows, caption, emphasis=(0,))]


def _losses_of(entry: Mapping[str, Any]) -> list[float | None]:
    """Losses of one way to spend: projected, cross-validated, held out."""
    return [
        _loss_of(entry.get("train", entry.get("projected_loss"))),
        as_number(entry.get("validation_loss")),
        _loss_of(entry.get("test", entry.get("test_loss"))),
    ]


def _loss_of(entry: Any) -> float | None:
    if not isinstance(entry, Mapping):
        return as_number(entry)
    projected = as_number(entry.get("projected_loss"))
    return as_number(entry.get("mse")) if projected is None else projected


def path_tables(selection: Mapping[str, Any]) -> list[Table]:
    """List the first purchases in order.

    Parameters
    ----------
    selection : mapping
        Content of ``selection.json``.

    Returns
    -------
    list of Table
        One table, or none where nothing was bought.
    """
    path = list(selection.get("path") or ())
    if not path:
        return []
    variance = as_number(selection.get("label_variance"))
    rows = []
    for step in path[:_PATH_SHOWN]:
        loss = as_number(step.get("projected_loss"))
        rows.append(
            [
                str(step.get("attribute")),
                as_number(step.get("count")),
                as_number(step.get("repeats")),
                as_number(step.get("cost")),
                as_number(step.get("spent")),
                loss,
                explained_share(loss, variance),
            ]
        )
    more = len(path) - len(rows)
    refined = (
        " Exchanging judgments after the last step has improved the selection further."
        if selection.get("refined")
        else ""
    )
    return [
        Table(
            [
                Column("Judgments of", "text"),
                Column("Number", "number"),
                Column("Its judgments so far", "number"),
                Column("Cost", "number"),
                Column("Spent", "number"),
                Column("Projected loss", "number"),
                Column("Variance explained", "percent"),
            ],
            rows,
            "The order of purchase. Stopping anywhere gives the selection for that smaller "
            f"budget.{refined}"
            + (f" The first {len(rows)} lines; {more} more are in selection.json." if more else ""),
        )
    ]


def attribute_table(selection: Mapping[str, Any], attributes: Sequence[Mapping[str, Any]]) -> Table:
    """List the attributes, the most bought first.

    Parameters
    ----------
    selection : mapping
        Content of ``selection.json``.
    attributes : sequence of mapping
        Its ``attributes``, with estimates b, v and σ.

    Returns
    -------
    Table
    """
    repeats = repeats_of(selection)
    deviation = math.sqrt(as_number(selection.get("label_variance")) or 0.0)
    rows: list[list[Any]] = []
    for a in attributes:
        name = str(a.get("name"))
        b, v, sigma = (as_number(a.get(key)) for key in ("b", "v", "sigma"))
        correlation = None if b is None or not sigma or not deviation else b / (sigma * deviation)
        noise = None if v is None or not sigma else v / sigma**2
        rest = (as_number(a.get(k)) for k in ("cost", "mean", "mean_judgments", "n_missing"))
        rows.append([name, repeats.get(name, 0), correlation, noise, b, v, sigma, *rest])
    rows.sort(key=lambda row: (-row[1], -abs(row[2] or 0.0)))
    more = len(rows) - _ATTRIBUTES_SHOWN
    rest_text = f" The first {_ATTRIBUTES_SHOWN}; {more} more are in selection.json."
    columns = ["Attribute", "r", "Correlation", "v̂/σ̂²", "b̂", "v̂", "σ̂"]
    columns += ["Cost", "Mean", "k̄", "Missing"]
    return Table(
        [Column(columns[0], "text"), *(Column(title, "number") for title in columns[1:])],
        rows[:_ATTRIBUTES_SHOWN],
        "All attributes, the most bought first. r: judgments to buy; correlation: b̂/σ̂ in units of "
        "the label's standard deviation, as if judged without noise; v̂: variance between raters of "
        "one object; σ̂: standard deviation between objects; k̄: judgments an object has on average; "
        "missing: objects without any." + (rest_text if more > 0 else ""),
    )
