"""The section `landmarks` of a job spec."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Strict, field_validator, model_validator

from distfms.methods.landmarks.similarity import PARAMETERS, Similarity
from distfms.spec import NonNegative, Positive, Section

#: Where the spec does not say.
DEFAULT_LANDMARKS, DEFAULT_KEPT = 500, 50

Count = Annotated[int, Strict(), Field(ge=1)]


class SimilaritySection(Section):
    """A similarity and its parameters."""

    name: str
    """`sigmoid`, `manhattan`, `gaussian`, `euclidean`, `linear`, `polynomial`, `cosine`,
    `precomputed` (the features are similarities to as many landmarks), or `module:function`: a
    function of rows (n, d) and landmarks (L, d) that returns an array (n, L).
    """
    a: Positive | None = None
    """Factor of the product, for `sigmoid` and `polynomial`; by default 1/columns."""
    r: Annotated[float, Strict(), Field(allow_inf_nan=False)] | None = None
    """Added to it; by default −1 for `sigmoid` and 1 for `polynomial`."""
    sigma: Positive | None = None
    """Width of `gaussian`; by default the mean distance between rows of the sample."""
    degree: Count | None = None
    """Of `polynomial`; by default 3."""

    @model_validator(mode="after")
    def _known(self) -> SimilaritySection:
        is_function = ":" in self.name
        if not is_function and self.name not in PARAMETERS:
            raise ValueError(
                f"there is no similarity `{self.name}`; known are {', '.join(PARAMETERS)}, and "
                "functions as `module:function`"
            )
        for name in self.given():
            if name not in PARAMETERS.get(self.name, {}):
                raise ValueError(f"`{name}` is no parameter of `{self.name}`")
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
    """What is predicted, by which similarity to how many landmarks."""

    task: Literal["regression", "sparse"] = "regression"
    """`regression` takes landmarks at random; `sparse` chooses `keep` of them one by one."""
    similarity: Annotated[tuple[SimilaritySection, ...], Field(min_length=1)] = (
        SimilaritySection(name="gaussian"),
    )
    """Name, or section of a name and parameters; or a list of these, of which the one with the
    least error in cross-validation is kept.
    """
    landmarks: Count | None = None
    """Rows that others are compared with, taken from the training rows by hash. By default 500, or
    all rows where there are fewer.
    """
    keep: Count | None = None
    """Landmarks of the model: for `sparse` those chosen (default 50), otherwise the first of the
    random order (default all).
    """
    criterion: Literal["gain", "gradient"] = "gain"
    """What a choice of `sparse` maximises: the fall of the squared loss, or its gradient."""
    ridge: NonNegative = 1e-6
    """Penalty on the squared weights, in units of the mean variance of a similarity."""
    bound: Positive | None = None
    """Largest Euclidean norm B of the weights, where similarities are divided by √landmarks."""
    scaling: Literal["standard", "unit", "none"] = "standard"
    """Whether features are compared in units of their standard deviation, of their range, or as
    they are.
    """
    sample: Count = 4096
    """Rows of each fold, and of the held-out rows, that kernel regression is fitted to and judged
    on, and that decide the default of `sigma` (500 of them at most).
    """
    baselines: tuple[Literal["kernel_regression"], ...] = ("kernel_regression",)
    """What the model is compared with."""

    @field_validator("similarity", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        listed = value if isinstance(value, list | tuple) else [value]
        return tuple({"name": one} if isinstance(one, str) else one for one in listed)

    @model_validator(mode="after")
    def _consistent(self) -> LandmarksOptions:
        names = [one.similarity.label for one in self.similarity]
        if len(set(names)) < len(names):
            raise ValueError("`similarity` lists the same similarity twice")
        if self.keep is not None and self.landmarks is not None and self.keep > self.landmarks:
            raise ValueError(
                f"`keep` is {self.keep}, and there are {self.landmarks} landmarks to choose from"
            )
        return self

    def n_kept(self, n_landmarks: int) -> int:
        """Return how many of these landmarks the model has."""
        default = DEFAULT_KEPT if self.task == "sparse" else n_landmarks
        return min(n_landmarks, self.keep or default)
