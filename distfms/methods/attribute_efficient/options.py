"""The ``attribute_efficient`` section of a job spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, Strict, model_validator

from distfms.errors import SpecError
from distfms.methods.attribute_efficient.draws import Drawing
from distfms.methods.attribute_efficient.from_pairs import Units
from distfms.spec import Positive, Section

#: Algorithms of the paper that observe some attributes, by penalty, and how they draw them.
ALGORITHMS: dict[str, dict[str, Drawing]] = {
    "ridge": {"ddaerr": "moments", "two_phase_ddaerr": "two_phase", "aerr": "uniform"},
    "lasso": {"ddaelr": "moments", "two_phase_ddaelr": "two_phase", "aelr": "uniform"},
}
#: What observes all attributes.
FULL = ("online", "offline")
#: Attributes up to which `solver: auto` keeps the moments of all pairs (1 GiB), and the most that
#: can be asked for.
MOST_PAIRS = 3000
LARGEST_PAIRS = 5000
#: Attributes up to which the best weights within the bound have a curve.
MOST_OFFLINE = 2000
#: Attributes that are drawn of an example by default.
N_DRAWN = 5
#: Points of a curve; each has half of the examples of the next.
N_SIZES = 6
#: Options of the online learner alone that `tune` may vary.
_STEPS = (
    "bound",
    "step_factor",
    "first_step_factor",
    "first_examples",
    "inner_product",
    "confidence",
)
TUNABLE = ("draws", *_STEPS)
ONLINE_ONLY = (*_STEPS, "norm")


class AttributeEfficientOptions(Section):
    """How many attributes of each example to observe, and how to learn from them."""

    attributes_per_example: Annotated[int, Field(ge=2)] | None = None
    """Attributes to draw of each training example: k + 1 of the paper. By default 5, or all of
    fewer; with `data.missing: pairs`, all values that a row has.
    """
    solver: Literal["auto", "pairs", "online"] = "auto"
    """`pairs` solves once, from the moments of pairs of attributes that were observed together;
    `online` takes a step for each example, as the paper does. `auto` takes `pairs` up to 3,000
    attributes, whose moments take 1 GiB, unless an option of the online learner is set; it mixes
    the linear model with LightGBM, which learns from what was observed of 50,000 rows at most. The
    linear model is a normal model of all that was observed, where rows times drawn attributes times
    the square of the number of attributes are no more than 5e7 (5,500 rows, 10 of 30), the penalty
    is the ridge and units are deviations; otherwise that of pairs. Folds choose the share (0, ¼, ½,
    ¾, 1), or the mean of the target; without folds it is the linear model. A normal model predicts
    labels of −1 and 1 by their expected values, between these. By name, `pairs` takes up to 5,000
    attributes.
    """
    algorithm: (
        Literal["ddaerr", "two_phase_ddaerr", "aerr", "ddaelr", "two_phase_ddaelr", "aelr"] | None
    ) = None
    """The name in the paper, in place of `solver: online` with its `draws` and `penalty`."""
    draws: Drawing | None = None
    """How attributes are drawn: with equal probabilities (`uniform`, the default of pairs); by
    their second `moments`, found by a pass over all rows (the default of `online`); or in
    `two_phase`, by the moments that the first examples show, which are drawn alike. Online these
    are the paper's AERR, DDAERR and two-phase DDAERR or, with `penalty: lasso`, AELR, DDAELR and
    two-phase DDAELR. Second moments help if all attributes have the same unit.
    """
    units: Units = "deviations"
    """With `solver: pairs`, what the ridge, the lasso and the noise are measured in: the observed
    standard `deviations` of the attributes, so that their units do not matter, or `raw` values, the
    norm of the paper, which is better where all attributes have the same unit, such as pixels.
    """
    penalty: Literal["ridge", "lasso"] = "ridge"
    """Bound on the sum of squares of the weights (ridge) or of their absolute values (lasso)."""
    bound: Positive | None = None
    """Largest norm of the weights of scaled attributes: B of the paper. No target may be larger.
    By default the largest target.
    """
    step_factor: Positive = 1.0
    """Multiplies the step of the theory, of this algorithm and of those it is compared with."""
    first_step_factor: Positive = 1.0
    """Multiplies the step of the theory in the first of two phases."""
    first_examples: Annotated[int, Field(ge=1)] | None = None
    """Examples of the first of two phases: m₁ of the paper. Where a curve has a share of the
    examples, it has that share of these. Default: a tenth.
    """
    inner_product: Literal["improved", "base"] = "improved"
    """How the inner product with the weights is estimated: `improved`, as in the paper's
    experiments, by half of the attributes, drawn by weight and second moment where moments are
    known; or by one, drawn by the weights alone (`base`: Algorithms 1 and 3).
    """
    confidence: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Confidence of the upper bounds on the moments that the first of two phases estimates; 0 takes
    the estimates as they are.
    """
    norm: Positive | Literal["largest"] | None = None
    """What to divide all attributes by; reported coefficients are for attributes as they come. The
    theory assumes that no row then has a norm beyond 1 (ridge), or no value (lasso). `largest`: the
    largest norm or value, found by a pass over all rows. By default algorithms that draw by second
    moments have it from their own pass; others take 1.5 times the root mean square norm, or the
    largest value, of what they observe of the first examples, 1,000 at most. In a session 1.
    """
    positive: Annotated[float, Strict(False), Field(allow_inf_nan=False)] | None = None
    """Value of the target to learn as 1; all others are −1."""
    repeats: Annotated[int, Field(ge=0, le=1000)] = 10
    """Repeats of the curves of the online learner, for error bars; 0 for no curves. They compare it
    with the other algorithms of the penalty, and with what observes all attributes: `online` takes
    a step for each row, `offline` has the best weights within `bound`. Pairs are compared with
    LightGBM on the same values, and with a ridge and LightGBM on so many rows in full that they
    cost no more or, with `data.missing: pairs`, with a ridge on imputed means.
    """

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        """Add what the name of an algorithm stands for."""
        if not isinstance(given, Mapping):
            return given
        for penalty, drawings in ALGORITHMS.items():
            drawing = drawings.get(str(given.get("algorithm")))
            if drawing is not None:
                return {"solver": "online", "draws": drawing, "penalty": penalty, **given}
        return given

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.algorithm not in (None, self.chosen):
            raise ValueError(
                f"`algorithm: {self.algorithm}` is not that of `solver: {self.solver}`, "
                f"`draws: {self.sampling}` and `penalty: {self.penalty}`; leave it out, or these"
            )
        if self.solver == "pairs" and self.online_options:
            raise ValueError(f"`{self.online_options[0]}` is an option of `solver: online`")
        return self

    def of_attributes(self, n_attributes: int, has_gaps: bool) -> Self:
        """Return options for so many attributes; a SpecError refuses more draws than these."""
        n_drawn = self.attributes_per_example
        if n_drawn is None and not has_gaps:
            n_drawn = max(min(N_DRAWN, n_attributes), 2)
        if (n_drawn or 0) > n_attributes:
            raise SpecError(
                f"`attribute_efficient.attributes_per_example` is {n_drawn}, "
                f"more than there are attributes (n_features = {n_attributes}). Choose at most "
                f"{n_attributes}."
            )
        return self.model_copy(update={"attributes_per_example": n_drawn})

    @property
    def online_options(self) -> list[str]:
        """Options of the online learner that are not at their defaults."""
        fields = type(self).model_fields
        return [name for name in ONLINE_ONLY if getattr(self, name) != fields[name].default]

    def solves_pairs(self, n_attributes: int) -> bool:
        """Whether the solver is that of pairs, of so many attributes."""
        few = n_attributes <= MOST_PAIRS and not self.online_options
        return self.solver == "pairs" or (self.solver == "auto" and few)

    @property
    def sampling(self) -> Drawing:
        """How attributes are drawn."""
        return self.draws or ("uniform" if self.solver == "pairs" else "moments")

    @property
    def chosen(self) -> str:
        """Name of the algorithm."""
        if self.solver == "pairs":
            return "pairs"
        by_drawing = {drawing: name for name, drawing in ALGORITHMS[self.penalty].items()}
        return by_drawing[self.sampling]

    @property
    def scanned_for(self) -> str:
        """What a pass over all attributes of all rows finds before anything is learned, as text."""
        draws_by_moments = self.sampling == "moments"
        if self.solver == "pairs":
            return "the second moments" if draws_by_moments else ""
        purposes = ["the scale"] if self.scans_norm else []
        if draws_by_moments:
            purposes.append("the second moments")
        return " and ".join(purposes)

    @property
    def scans_norm(self) -> bool:
        """Whether attributes are divided by the largest norm of all rows."""
        return self.norm == "largest" or (self.norm is None and self.sampling == "moments")

    @property
    def observes_norm(self) -> bool:
        """Whether chains divide attributes by what they observe."""
        return self.norm is None and self.sampling != "moments"

    @property
    def compared(self) -> tuple[str, ...]:
        """Names of the algorithms of the curves, the chosen one first."""
        return tuple(dict.fromkeys((self.chosen, *ALGORITHMS[self.penalty], *FULL)))


#: What `tune` may compare by, and whether more is better.
MEASURES = {"relative_loss": False, "mse": False}


#: Multiples of the theory's steps, and bounds where targets are −1 and 1, of the paper's folds.
PAPER_STEPS = [0.3, 1.0, 3.0, 10.0, 30.0, 100.0]
PAPER_BOUNDS = [1.0, 3.0, 10.0]


def paper(options: Mapping[str, Any], data: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return what the paper's experiments set (section 5), if examples are learned online."""
    if options.get("solver", "online") != "online":
        return {}
    section = {"solver": "online", "norm": "largest", "repeats": 100}
    grid = {"step_factor": PAPER_STEPS}
    if options.get("draws") == "two_phase":
        grid["first_step_factor"] = PAPER_STEPS
    if options.get("positive") is not None:
        grid["bound"] = PAPER_BOUNDS
    grid = {name: values for name, values in grid.items() if name not in options}
    if not grid:
        return {"attribute_efficient": section}
    return {"attribute_efficient": section, "data": {"folds": 10}, "tune": {"grid": grid}}
