"""The commands ``distfms data …``: what data there are."""

from __future__ import annotations

from typing import Annotated

import typer

from distfms.terminal import say, show

app = typer.Typer(help="List embedded datasets and inspect data.", no_args_is_help=True)


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
