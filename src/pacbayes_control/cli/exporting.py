"""`pbc export` and `pbc cite`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pacbayes_control.certify.files import write_output
from pacbayes_control.certify.run import AlteredRun
from pacbayes_control.certify.trials import COMPARISON
from pacbayes_control.cli import options
from pacbayes_control.cli.app import app
from pacbayes_control.report.console import out, say, working
from pacbayes_control.tasks.options import option

if TYPE_CHECKING:
    from pacbayes_control.certify.trials import Trials
    from pacbayes_control.report.exports import Export
    from pacbayes_control.trials.comparing import Comparison


@dataclass(frozen=True)
class ExportOptions:
    """Runs, comparisons or sweeps, and where their tables and figures go."""

    what: Annotated[
        list[Path],
        typer.Argument(metavar="WHAT...", help="Folders of runs, of comparisons or of sweeps."),
    ]
    out: Path | None = option(None, "The folder to write to.", metavar="FOLDER")
    width: float = option(3.4, "Of the figures, in inches.")
    force: bool = option(False, "Replace LaTeX files that this command did not write.")
    json_file: options.JsonFile = None


@app.command()
@options.takes_record
def export(asked: ExportOptions) -> None:
    """Write all tables and figures for a paper: LaTeX, CSV, and PDF of a column's width.

    Captions state the guarantee, with every bound rounded upwards, and what it is not. Runs and
    comparisons are verified first. Exit code 1 if one does not hold, as for `pbc verify`.

    Example: pbc export runs/braking --out paper/braking
    """
    from pacbayes_control.report.exports import NARROWEST, WIDEST, check_replaceable, file_names

    folders = [folder_of(path) for path in asked.what]
    if asked.out is None:
        raise ValueError("say where to write: --out FOLDER")
    options.check_json(asked.json_file, *folders)
    _check_out(asked.out, folders)
    if not NARROWEST <= asked.width <= WIDEST:
        raise ValueError(
            f"a width of {asked.width:g} inches: give one from {NARROWEST:g} to {WIDEST:g}"
        )
    names = file_names(folders)
    exports = [_export(*each, asked.json_file) for each in zip(folders, names, strict=True)]
    check_replaceable([file for each in exports for file in each.files(asked.out)], asked.force)
    written: list[Path] = []
    with working("drawing"):
        for each in exports:
            written += each.write(asked.out, asked.width)
    tables = sum(len(each.tables) for each in exports)
    plots = sum(len(each.plots) for each in exports)
    say(
        f"{asked.out}: tables {tables:,} (.tex, .csv), figures {plots:,} (.pdf, .tex), "
        f"{asked.width:g} inches wide."
    )
    say("In the preamble: \\usepackage{booktabs,graphicx}; then \\input{FILE.tex} where it goes.")
    options.write_json(asked.json_file, {"files": [str(file) for file in written]})


def folder_of(path: Path) -> Path:
    """The folder of a run, a comparison or a sweep, from its path or that of its main file."""
    main = path.name in ("certificate.json", COMPARISON, options.SWEEP) and path.is_file()
    folder = path.parent if main else path
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no run, comparison or sweep at {path}")
    return folder


def _check_out(out: Path, folders: Sequence[Path]) -> None:
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file: tables and figures go to a folder")
    for folder in folders:
        if folder.resolve() in (out.resolve(), *out.resolve().parents):
            raise ValueError(f"{out} is the input {folder}, or lies in it: write elsewhere")
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ValueError("a folder is named twice: name each once")


def _export(folder: Path, name: str, json_file: Path | None) -> Export:
    """The tables and figures of a folder, after it was verified."""
    if options.holds(folder, options.SWEEP):
        from pacbayes_control.report.sweep_exports import sweep_export
        from pacbayes_control.study.sweep import load_sweep

        return sweep_export(load_sweep(folder), name)
    if options.holds(folder, COMPARISON):
        from pacbayes_control.report.trial_exports import comparison_export

        return comparison_export(*_compared(folder, json_file), name)
    from pacbayes_control.report.run_exports import run_export

    return run_export(options.verified(folder, json_file, one_of_several=True), name)


def _compared(folder: Path, json_file: Path | None) -> tuple[Comparison, Trials]:
    from pacbayes_control.trials.comparing import load_comparison
    from pacbayes_control.verify import InvalidCertificate

    try:
        with working("verifying"):
            return load_comparison(folder)
    except (AlteredRun, InvalidCertificate) as error:
        raise options.not_verified(json_file, f"{folder}: {error}") from None


# ---- references ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class CiteOptions:
    """A run, and where its references go."""

    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="Folder of a run or of a comparison.")
    ] = None
    out: Path | None = option(None, "Write them to this .bib file.", metavar="FILE")
    json_file: options.JsonFile = None


@app.command()
@options.takes_record
def cite(asked: CiteOptions) -> None:
    """Print BibTeX of the paper, of the theorems that a certificate applies, and of this software.

    Without a run: of the paper and of this software.

    Example: pbc cite runs/braking --out braking.bib
    """
    from pacbayes_control.report.citations import PAPER, bibtex

    inputs = [] if asked.run is None else [folder_of(asked.run)]
    for folder in inputs:
        if options.holds(folder, options.SWEEP):
            raise ValueError(f"{folder} is a sweep, which has no certificate: name a run")
    options.check_json(asked.json_file, *inputs)
    options.check_writable(asked.out, *inputs)
    if asked.out is not None and asked.out.suffix.lower() != ".bib":
        raise ValueError(f"{asked.out}: references are a .bib file")
    keys = _references(inputs[0], asked.json_file) if inputs else []
    text = bibtex(keys)
    if asked.out is not None:
        write_output(asked.out, text.encode())
        say(f"{asked.out}: {len(keys) + 2} references.")
    else:
        out.print(text.rstrip(), soft_wrap=True)  # which may be copied
    record: dict[str, Any] = {"keys": [PAPER, *keys, "pacbayes-control"], "bibtex": text}
    options.write_json(asked.json_file, record)


def _references(folder: Path, json_file: Path | None) -> list[str]:
    """The keys of a run's or a comparison's references, after it was verified."""
    from pacbayes_control.report.citations import EVIDENCE, keys_of

    if options.holds(folder, COMPARISON):
        _compared(folder, json_file)
        return list(EVIDENCE)
    return keys_of(options.verified(folder, json_file).certificate)
