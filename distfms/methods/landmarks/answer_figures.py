"""What a job on landmarks answers: what to do with the model, and whether another one is better."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from distfms.methods.frame.contract import FinishedRun
from distfms.report.formatting import as_number, fixed, interval, measure_title, number
from distfms.report.headline import no_better
from distfms.report.metrics import curves_of, error_of, trusted

#: What the model is compared with on folds, as the headline calls it.
_LINEAR, _TREES = "a linear model", "LightGBM"
_CALLED = {"linear model on the columns": _LINEAR, "LightGBM": _TREES}


def reading_of(run: FinishedRun) -> str:
    """Return the rows whose errors are trusted most."""
    return trusted(curves_of(run.metrics).values(), run.metrics["measure"])


def judged(run: FinishedRun) -> Mapping[str, Any]:
    """Return the measures of the model on the rows that are trusted most."""
    measures: Mapping[str, Any] = run.metrics["curves"][0]["points"][-1][reading_of(run)]
    return measures


def explained_share(run: FinishedRun) -> float | None:
    """Return R² where models are fitted to the target, not to gains of a ranking."""
    if run.metrics["measure"] != "mse":
        return None
    return as_number(judged(run).get("r2"))


def headline(run: FinishedRun) -> str:
    """Return in one sentence what to do with the model, and what it is worth."""
    measure = run.metrics["measure"]
    constant = run.metrics.get("constant", {"model_is_better": True})
    if not constant["model_is_better"]:
        comparison = "right as often" if measure == "error" else "as good"
        answer = constant["answer"]
        return no_better(answer, f"the model {_worth(run)}", comparison)
    worth = _worth(run)
    rivals = _rivals(run)
    better = [name for name in rivals if rivals[name] == "better"]
    if better:
        return f"Use {better[0]} instead: it is better than this model, which {worth}."
    if rivals.get(_LINEAR) == "as good":
        return f"Use a linear model instead: it is as good as this model, which {worth}."
    if rivals.get(_TREES) == "as good":
        return f"Use this model or LightGBM, which is as good: it {worth}."
    if not rivals:
        return f"Use this model: it {worth}."
    return f"Use this model: it {worth}, better than {' and '.join(rivals)}."


def _rivals(run: FinishedRun) -> dict[str, str]:
    """Return how other models compare on the folds, the best first: better, as good, or worse."""
    behind = dict[str, float]()
    verdicts = dict[str, str]()
    for reference, entry in run.metrics.get("beside", {}).items():
        if None in entry.values():
            continue
        name = _CALLED[reference]
        behind[name] = entry["behind"]
        verdicts[name] = "worse"
        if entry["behind"] > entry["standard_error"]:
            verdicts[name] = "better"
        elif entry["behind"] >= -entry["standard_error"]:
            verdicts[name] = "as good"
    order = sorted(verdicts, key=lambda name: -behind[name])
    return {name: verdicts[name] for name in order}


def _worth(run: FinishedRun) -> str:
    """Say what the model gives, on rows that taught it nothing where there are any."""
    reading = reading_of(run)
    measure = run.metrics["measure"]
    rows = "the rows it learned from" if reading == "train" else "new rows"
    share = explained_share(run)
    if share is not None:
        explained = interval(share, spread_of(run, "r2"))
        return f"explains {explained} of the variation in {rows}"
    value = judged(run)[measure]
    spread = spread_of(run, measure)
    if measure == "error":
        return f"gets {interval(1.0 - value, spread)} of {rows} right"
    text = number(value, 3)
    if spread:
        decimals = max(0, -math.floor(math.log10(spread)))
        text = f"{fixed(value, decimals)} ± {fixed(spread, decimals)}"
    if measure == "mae":
        unit = " levels" if run.selection["task"] == "ordinal" else ""
        return f"is off by {text}{unit} on average in {rows}"
    return f"ranks {rows} with {measure_title(measure)} {text}"


def spread_of(run: FinishedRun, measure: str) -> float | None:
    """Return the standard error of a measure, over folds."""
    return error_of(run.metrics, reading_of(run), run.metrics["folds"], measure)
