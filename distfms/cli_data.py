"""The commands ``distfms data …``: data in the form that jobs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distfms.terminal import say, show

app = typer.Typer(help="Prepare data: convert, inspect.", no_args_is_help=True)


@app.command("judgments")
def judgments(
    source: Annotated[str, typer.Argument(help="Parquet or CSV in long form.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    object_: Annotated[str, typer.Option("--object", help="Column of the object.")],
    attribute: Annotated[str, typer.Option(help="Column of the attribute.")],
    value: Annotated[str, typer.Option(help="Column of the judgment.")],
    label: Annotated[str, typer.Option(help="Label: a column of --labels, or an attribute.")],
    labels: Annotated[str | None, typer.Option(help="Table with a label for each object.")] = None,
    worker: Annotated[str | None, typer.Option(help="Column of the worker.")] = None,
    label_from: Annotated[
        str, typer.Option(help="Without --labels: mean, column, or a column with the label.")
    ] = "mean",
    duplicates: Annotated[
        str, typer.Option(help="A worker's second judgment of a cell: error, keep or first.")
    ] = "error",
    max_judgments: Annotated[
        int | None, typer.Option(help="Most judgments to keep of a cell.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a dataset at --out.")
    ] = False,
) -> None:
    """Convert judgments from long form (object, attribute, value) to one row per object."""
    from distfms.runs.inputs import convert_judgments

    for line in convert_judgments(
        source,
        out,
        object=object_,
        attribute=attribute,
        value=value,
        worker=worker,
        labels=labels,
        label=label,
        label_from=label_from,
        duplicates=duplicates,
        max_judgments=max_judgments,
        seed=seed,
        overwrite=overwrite,
    ):
        say(line)


@app.command("list")
def list_() -> None:
    """List embedded datasets."""
    from distfms.data.builtin import BUILTIN

    show(("name", "what"), [(name, entry.description) for name, entry in BUILTIN.items()])


@app.command("show")
def show_(path: Annotated[str, typer.Argument(help="Folder, file, glob or URL.")]) -> None:
    """Show the files, partitions and columns of a dataset."""
    from distfms.data.dataset import open_dataset
    from distfms.engine.memory import counted

    dataset = open_dataset(path)
    say(
        f"{counted(dataset.n_rows, 'row')}, {counted(len(dataset.files), 'file')}, "
        f"{counted(len(dataset.partitions), 'partition')}, {dataset.n_bytes:,} bytes decoded, "
        f"fingerprint {dataset.fingerprint[:16]}"
    )
    show(("column", "type"), [(column.name, str(column.type)) for column in dataset.schema])
