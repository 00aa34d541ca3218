"""Types of public names for editors and type checkers: `python -m tests.architecture.stubs`."""

import inspect
from collections.abc import Iterable
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import distfms
from distfms.spec import DataSection, Section

STUB = Path(distfms.__file__).with_suffix(".pyi")
#: Parameters that are no options of a job.
OTHERS = {
    "groups": "Mapping[str, Sequence[Any] | str] | Sequence[Any] | None",
    "costs": "Mapping[str, float] | Sequence[float] | None",
    "tune": "Mapping[str, Any] | None",
    "random_state": "int",
    "n_jobs": "int | None",
    "verbose": "bool",
}


def type_text(annotation: Any) -> str:
    """Return an annotation of an option as users may give it."""
    origin = get_origin(annotation)
    inner = get_args(annotation)
    if origin is Annotated:
        return type_text(inner[0])
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(map(type_text, inner)))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, inner))}]"
    if origin in (tuple, list):
        return f"Sequence[{type_text(inner[0])}]"
    if origin is dict:
        return f"Mapping[str, {type_text(inner[1])}]"
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return "Mapping[str, Any]"
    if annotation in (int, float, bool, str):
        return str(annotation.__name__)
    return "None" if annotation is NoneType else "Any"


def parameters(estimator: Any) -> Iterable[str]:
    """Yield the parameters of an estimator's constructor."""
    yield "self"
    is_keyword = False
    for name, one in inspect.signature(estimator).parameters.items():
        if one.kind is one.KEYWORD_ONLY and not is_keyword:
            is_keyword = True
            yield "*"
        field = (estimator._Options.model_fields | DataSection.model_fields).get(name)
        text = OTHERS.get(name) or ("Any" if field is None else type_text(field.annotation))
        if one.default is None and "None" not in text and text != "Any":
            text += " | None"
        yield f"{name}: {text}{'' if one.default is one.empty else ' = ...'}"


def stub() -> str:
    """Return the content of the stub."""
    lines = [
        "# Made from the options of the methods by `python -m tests.architecture.stubs`.",
        "from collections.abc import Mapping, Sequence",
        "from typing import Any, Literal",
        "",
    ]
    classes = []
    for name, module in distfms._PUBLIC.items():
        if ".estimators." in module and isinstance(getattr(distfms, name), type):
            lines.append(f"from {module} import {name} as _{name}")
            own = parameters(getattr(distfms, name))
            head = ",\n".join(f"        {one}" for one in own)
            init = f"    def __init__(\n{head},\n    ) -> None: ..."
            classes += ["", f"class {name}(_{name}):", init]
        else:
            lines.append(f"from {module} import {name} as {name}")
    return "\n".join([*lines, "", "__version__: str", *classes, ""])


if __name__ == "__main__":
    STUB.write_text(stub())
