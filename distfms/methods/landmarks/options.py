"""The section `landmarks` of a job spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from distfms.methods.landmarks.similarity import PARAMETERS, PRECOMPUTED, Similarity
from distfms.spec import Listed, NonNegative, Positive, Section

#: Where the spec does not say: landmarks, their most with squared loss, and those `sparse` keeps.
DEFAULT_LANDMARKS, MOST_LANDMARKS, DEFAULT_KEPT = 500, 1000, 50
#: Multiplications of a pass over all rows up to which there are more landmarks than the default.
_MOST_WORK = 2**37

#: Losses that a task has, the default first.
LOSSES = {
    "regression": ("squared", "epsilon_insensitive"),
    "sparse": ("squared", "epsilon_insensitive"),
    "ordinal": ("margin", "all_margins"),
    "classification": ("logistic", "hinge"),
    "ranking": ("squared",),
}

#: Name that stands for the similarities to compare by default.
AUTO = "auto"
#: Numbers whose squares are finite, with much room.
_MOST = 1e100

Count = Annotated[int, Field(ge=1)]


class SimilaritySection(Section):
    """A similarity and its parameters."""

    name: str
    """`auto`, `sigmoid`, `manhattan`, `gaussian`, `laplace`, `euclidean`, `linear`, `precomputed`
    (the features are similarities to as many landmarks), or `module:function`: a function of rows
    (n, d) and landmarks (L, d) that returns an array (n, L).
    """
    a: Positive | None = None
    """Factor of the product, for `sigmoid`; by default 1/columns."""
    r: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Added to it, for `sigmoid`; by default −1."""
    sigma: Positive | None = None
    """Width of `gaussian` and `laplace`; by default chosen with the metric, and without one the
    mean distance between rows of the sample.
    """

    @model_validator(mode="after")
    def _known(self) -> SimilaritySection:
        is_function = ":" in self.name
        if not is_function and self.name not in (AUTO, *PARAMETERS):
            raise ValueError(
                f"unknown similarity `{self.name}`; choose from {', '.join(PARAMETERS)}, or a "
                "function as `module:function`"
            )
        for name in self.given():
            if name not in PARAMETERS.get(self.name, {}):
                raise ValueError(f"`{name}` is not a parameter of `{self.name}`")
        return self

    def given(self) -> dict[str, float]:
        """Return the parameters that were given."""
        content = self.model_dump(exclude={"name"})
        return {name: float(value) for name, value in content.items() if value is not None}

    @property
    def similarity(self) -> Similarity:
        """The similarity, its parameters as far as they were given."""
        return Similarity(self.name, tuple(self.given().items()))


class LandmarksOptions(Section):
    """What to predict, from which similarity to how many landmarks."""

    task: Literal["auto", "regression", "sparse", "ordinal", "classification", "ranking"] = "auto"
    """`regression` and `sparse` predict a number, `ordinal` one of several levels in order,
    `classification` one of several classes, `ranking` the order of the rows of each query
    (`data.query`), whose target is their relevance, 0, 1, 2, …. `sparse` chooses `keep` landmarks
    one by one; the others take them at random. `auto`: `classification` where the target holds
    texts, otherwise `regression`.
    """
    loss: (
        Literal["squared", "epsilon_insensitive", "margin", "all_margins", "hinge", "logistic"]
        | None
    ) = None
    """`squared` (the default) or `epsilon_insensitive` for `regression` and `sparse`, `squared` for
    `ranking` (to normalised gains), `margin` (the default: from the two thresholds of a row's
    level) or `all_margins` (from all thresholds, which are learned) for `ordinal`, `logistic` (the
    default) or `hinge` for `classification`, also where `task: auto` finds classes for
    `epsilon_insensitive`. All but `squared` are fitted by passes over rows that stay in memory
    where they fit.
    """
    epsilon: NonNegative | None = None
    """Error without a loss, in units of the target; by default a tenth of its standard deviation.
    """
    gamma: Positive = 0.5
    """Margin that predictions keep from the thresholds of `ordinal`, whose levels are 1 apart."""
    spacing: NonNegative | None = None
    """Learn the thresholds of the loss `margin`, with at least this distance between them; by
    default they are fixed half-way between the levels.
    """
    smoothing: Positive = 0.01
    """Width over which corners of a loss are rounded (1/β), in standard deviations of a target that
    is a number, otherwise in margins or levels.
    """
    similarity: Annotated[Listed[SimilaritySection], Field(min_length=1)] = (
        SimilaritySection(name="auto"),
    )
    """Name, or section with name and parameters; or a list of these, from which folds choose the
    one with the least loss on rows that they hold out, of a sample. `auto`: `linear` and `gaussian`
    (for a `ranking`, `gaussian`). Whatever is compared, the constant is too: a model that is no
    better has no landmarks.
    """
    landmarks: Count | Literal["auto"] = "auto"
    """Number of rows to compare others with, drawn from the training rows by hash, or from
    `data.unlabelled_path`. `auto` takes 500, and up to 1,000 for a `regression` of squared loss on
    up to about 130,000 rows, of which `keep` is then the least number, among 1, 2, 5, 10, …, whose
    cross-validated error is within half a percent of the least.
    """
    keep: Count | None = None
    """Number of landmarks in the model: for `sparse` those chosen (default 50), otherwise the first
    in random order (default all).
    """
    ridge: NonNegative | None = None
    """Ridge: ½·`ridge`·wᵀAw is added to the mean loss of every task, where A has the similarities
    of the landmarks to each other for `gaussian`, `laplace` and `linear` (the squared norm of the
    function), and for others the mean variance of the similarities on its diagonal. A squared error
    counts half, and other losses of a number are measured in standard deviations of the target. By
    default chosen by the folds, with metric and width.
    """
    metric: Literal["auto", "none", "diagonal", "full"] = "auto"
    """Metric of distances for `gaussian` and `laplace`, learned from the target: a weight for each
    column (`diagonal`: its likely scale, as a Gaussian process would have it), or for each
    direction (`full`: by the gradients of that process). `auto` compares `none` and, up to 500
    columns, `diagonal`; each fold learns its own. A metric comes with the width and the ridge that
    are best with it; a `sigma` that is given is that of the metric, too. `none` alone, as for a
    `ranking`, has the mean distance between rows as its width.
    """
    bound: Positive | None = None
    """Largest Euclidean norm B of the weights, where similarities are divided by √landmarks;
    of `steps` the largest sum C_W of their sizes, on similarities as they are.
    """
    intercept: bool = True
    """Whether a constant is added to the weighted similarities; it has no ridge. Without one, both
    similarities and target are taken as they are, and the mean squares of these stand where their
    variances are spoken of.
    """
    selection: Literal["gain", "gradient", "steps"] = "gain"
    """Which landmark `sparse` chooses next: the one that lowers the loss most once all weights are
    fitted again (`gain`), or the one along which the loss falls most steeply, after which all
    weights are fitted again (`gradient`: the paper's Algorithm 2, fully corrective). `steps` are
    those of Algorithm 2 alone, without a refit and within a `bound`: they end where no model
    within it has a mean loss that is lower by more than a thousandth of the target's variance (of
    its deviation with `epsilon_insensitive`), or where another landmark would be one too many. With
    the loss
    `epsilon_insensitive`, which `smoothing` rounds (1/β), each choice passes over the rows, and
    `gain` is the slope by similarities in units of their standard deviation.
    """
    clip: bool = True
    """Whether predictions of `regression` and `sparse` are cut to the range of the target in the
    training rows. Errors in the report that come from statistics are those before the cut.
    """
    scaling: Literal["standard", "unit", "none"] = "standard"
    """Scale of the features: in units of their standard deviation or range, or unchanged."""
    baselines: Listed[Literal["columns", "kernel_regression", "lightgbm"]] = (
        "columns",
        "kernel_regression",
        "lightgbm",
    )
    """What the model is compared with: a ridge or a logistic regression on the `columns`
    themselves, and the best constant; `kernel_regression`, and LightGBM with its defaults
    (`lightgbm`). All learn from the rows in memory: all of up to 50,000, else a share of them.
    """

    @field_validator("similarity", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        listed = value if isinstance(value, list | tuple) else [value]
        return tuple({"name": one} if isinstance(one, str) else one for one in listed)

    @model_validator(mode="after")
    def _consistent(self) -> LandmarksOptions:
        for name, value in (("ridge", self.ridge), ("spacing", self.spacing)):
            if value is not None and value > _MOST:
                raise ValueError(f"`{name}` is {value:g}; at most {_MOST:g} is of use")
        if len(self.similarity) > 1 and AUTO in [one.name for one in self.similarity]:
            raise ValueError("`similarity` lists `auto` beside others; leave it out")
        names = [one.similarity.label for one in self.listed]
        if len(set(names)) < len(names):
            raise ValueError("`similarity` lists the same similarity twice")
        if self.task != "auto" and self.loss not in (None, *LOSSES[self.task]):
            raise ValueError(
                f"the task `{self.task}` does not have the loss `{self.loss}`; it has "
                f"{', '.join(LOSSES[self.task])}"
            )
        if self.spacing is not None and self.loss == "all_margins":
            raise ValueError("`spacing` is for the loss `margin`; leave it out with `all_margins`")
        if self.selection != "gain" and self.task != "sparse":
            raise ValueError(f"`selection: {self.selection}` is for the task `sparse`")
        if self.takes_steps and self.bound is None:
            raise ValueError(
                "`selection: steps` needs a `bound`, the largest sum of weights' sizes"
            )
        if self.task == "ranking" and self.metric not in ("auto", "none"):
            raise ValueError("the task `ranking` has no metric; leave `metric` out")
        if self.keep is not None and self.landmarks != "auto" and self.keep > self.landmarks:
            raise ValueError(
                f"`keep` is {self.keep}, but there are {self.landmarks} landmarks to choose from"
            )
        return self

    @property
    def is_auto(self) -> bool:
        """Whether folds choose the similarity among those that there are by default."""
        return self.similarity[0].name == AUTO

    @property
    def listed(self) -> tuple[SimilaritySection, ...]:
        """The similarities to compare."""
        if not self.is_auto:
            return self.similarity
        names = ("gaussian",) if self.task == "ranking" else ("linear", "gaussian")
        return tuple(SimilaritySection(name=name) for name in names)

    @property
    def chosen_loss(self) -> str:
        """The loss, or that of the task by default."""
        return self.loss or LOSSES[self.task][0]

    @property
    def takes_steps(self) -> bool:
        """Whether weights are those of Algorithm 2, without a refit."""
        return self.selection == "steps"

    @property
    def is_precomputed(self) -> bool:
        """Whether the features are similarities."""
        return self.listed[0].name == PRECOMPUTED

    @property
    def functions(self) -> frozenset[str]:
        """Similarities that are not built in, as ``module:function``."""
        return frozenset(one.name for one in self.listed if one.name not in PARAMETERS)

    @property
    def used_scaling(self) -> str:
        """How features are scaled."""
        return PRECOMPUTED if self.is_precomputed else self.scaling

    def most_landmarks(self, n_rows: int, n_columns: int) -> int:
        """Return how many landmarks there are at most, for so many rows and columns."""
        if self.landmarks != "auto":
            return self.landmarks
        if not self.counts:
            return DEFAULT_LANDMARKS
        # L similarities of a row take L·d multiplications, and their co-moments L².
        of_row, d = _MOST_WORK / max(n_rows, 1), n_columns
        most = int((d**2 / 4 + of_row) ** 0.5 - d / 2)
        return min(max(most, DEFAULT_LANDMARKS), MOST_LANDMARKS)

    @property
    def counts(self) -> bool:
        """Whether folds choose the number of landmarks, where there are any."""
        squared = self.task == "regression" and self.chosen_loss == "squared"
        return squared and self.landmarks == "auto" and not self.is_precomputed

    def n_kept(self, n_landmarks: int) -> int:
        """Return how many of these landmarks the model has."""
        default = DEFAULT_KEPT if self.task == "sparse" else n_landmarks
        return min(n_landmarks, default if self.keep is None else self.keep)


def paper(options: Mapping[str, Any], data: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return what the paper's experiments set (section 4)."""
    task = options.get("task", "auto")
    sets: dict[str, Any] = {"similarity": "sigmoid", "metric": "none"}
    sets |= {"intercept": False, "ridge": 0.0}
    sets["baselines"] = ("kernel_regression",)
    if task == "sparse":
        sets["selection"] = "gradient"
    else:
        sets["landmarks"] = 50
    if task in ("auto", "regression", "sparse"):
        sets["clip"] = False
    if task in ("auto", "regression"):
        sets["loss"] = "epsilon_insensitive"
    if task == "classification":
        sets["loss"] = "hinge"
    return {"landmarks": sets}
