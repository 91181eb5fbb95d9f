"""Break the source at random places, one at a time, and see whether a test notices.

    python tests/mutations.py reach                    # which test reaches which line, and for how long
    python tests/mutations.py draw 60 --seed 1 --out mutants.json
    python tests/mutations.py run mutants.json         # prints a line each, and writes the outcome

Only the tests that reach a mutant run, the quickest first, until one fails. Compiled kernels leave no
trace of their lines, and neither do lines that run at import: for those, the tests that reach the
module run, or else its folder. A mutant is kept as the text before and after, so that the same ones
can be tried on another state of the tests (and are not found where the source has changed there).
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
SOURCE = Path("src/pacbayes_control")
DATA = ROOT / ".coverage"
TIMES = ROOT / ".test-times.json"
CONFIG = """
[run]
branch = true
source = pacbayes_control
patch = subprocess
parallel = true
context = ${PYTEST_CURRENT_TEST-}
relative_files = true
"""
SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or,
    ast.Or: ast.And, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor"}


@dataclass(frozen=True)
class Mutant:
    """One change of the source: `before` at (line, column) of `file` becomes `after`."""

    file: str
    line: int
    column: int
    before: str
    after: str

    def __str__(self) -> str:
        short = [" ".join(text.split())[:60] for text in (self.before, self.after)]
        return f"{self.file}:{self.line}  {short[0]}  →  {short[1]}"


def mutants_of(file: Path) -> Iterator[Mutant]:
    """Every mutant of a file: operators, comparisons, numbers, conditions, returns, statements."""
    text = (ROOT / file).read_text()
    tree = ast.parse(text)
    skipped = {
        id(inner) for node in ast.walk(tree) for part in told(node) for inner in ast.walk(part)
    }
    for node in ast.walk(tree):
        if id(node) in skipped or not hasattr(node, "lineno"):
            continue
        before = ast.get_source_segment(text, node)
        if before is None or before != before.strip():
            continue
        for after in variants(node):
            lines = text.splitlines()
            column = len(lines[node.lineno - 1].encode()[: node.col_offset].decode())
            yield Mutant(str(file), node.lineno, column, before, after)


def told(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that say something and do nothing: annotations, docstrings, formats."""
    for field in ("annotation", "returns", "decorator_list"):
        part = getattr(node, field, None)
        yield from part if isinstance(part, list) else [part] if part is not None else []
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node
    if isinstance(
        node, ast.JoinedStr | ast.TypeAlias if hasattr(ast, "TypeAlias") else ast.JoinedStr
    ):
        yield node
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        yield node


def variants(node: ast.AST) -> Iterator[str]:
    other = copy.deepcopy(node)
    match other:
        case ast.Compare(ops=[operator]) if type(operator) in SWAPS:
            other.ops = [SWAPS[type(operator)]()]
            yield f"({ast.unparse(other)})"
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if type(operator) in SWAPS:
            other.op = SWAPS[type(operator)]()
            yield f"({ast.unparse(other)})"
        case ast.AugAssign(op=operator) if type(operator) in SWAPS:
            other.op = SWAPS[type(operator)]()
            yield ast.unparse(other)
        case ast.UnaryOp(operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield str(value + 1)
        case ast.Name(id=name, ctx=ast.Load()) if name in NAMES:
            yield NAMES[name]
        case ast.Return(value=ast.expr()):
            yield "return None"
        case ast.IfExp(test=test):
            other.test = ast.UnaryOp(ast.Not(), test)
            yield f"({ast.unparse(other)})"
        case ast.Raise() | ast.Expr(value=ast.Call()):
            yield "pass"


def conditions_of(file: Path) -> Iterator[Mutant]:
    """Each `if` and `while` with its condition turned round."""
    text = (ROOT / file).read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.If | ast.While) and "TYPE_CHECKING" not in ast.unparse(node.test):
            before = ast.get_source_segment(text, node.test)
            assert before is not None
            line = text.splitlines()[node.test.lineno - 1]
            column = len(line.encode()[: node.test.col_offset].decode())
            after = f"(not ({ast.unparse(node.test)}))"
            yield Mutant(str(file), node.test.lineno, column, before, after)


def draw(number: int, seed: int) -> list[Mutant]:
    """A random sample of all mutants that compile, no two on one line."""
    files = sorted(path.relative_to(ROOT) for path in (ROOT / SOURCE).rglob("*.py"))
    every = sorted({mutant for file in files for mutant in (*mutants_of(file), *conditions_of(file))},
                   key=lambda mutant: (mutant.file, mutant.line, mutant.column, mutant.after))  # fmt: skip
    random.Random(seed).shuffle(every)
    chosen: dict[tuple[str, int], Mutant] = {}
    for mutant in every:
        if len(chosen) < number and (mutant.file, mutant.line) not in chosen:
            compile(changed(ROOT, mutant), mutant.file, "exec")
            chosen[mutant.file, mutant.line] = mutant
    return list(chosen.values())


def changed(tree: Path, mutant: Mutant) -> str:
    """The text of the mutant's file in this tree, with the mutant in it."""
    text = (tree / mutant.file).read_text()
    lines = text.splitlines(keepends=True)
    place = sum(map(len, lines[: mutant.line - 1])) + mutant.column
    if not text.startswith(mutant.before, place):
        raise SystemExit(f"{mutant} is not in the source as it is now")
    return text[:place] + mutant.after + text[place + len(mutant.before) :]


def reach(arguments: list[str]) -> None:
    """Run the suite once, with a record of the tests that reach each line and of their durations."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "coveragerc"
        config.write_text(CONFIG)
        times = Path(folder) / "times.xml"
        pytest = [sys.executable, "-m", "pytest", "-q", "-n", "logical", f"--junit-xml={times}"]
        measured = ["--cov=pacbayes_control", f"--cov-config={config}", "--cov-context=test"]
        subprocess.run([*pytest, *measured, "--cov-report=", *arguments], cwd=ROOT, check=False)
        TIMES.write_text(json.dumps(durations(times)))
    subprocess.run([sys.executable, "-m", "coverage", "report", f"--data-file={DATA}", "--format=total"],
                   cwd=ROOT, check=False)  # fmt: skip


def durations(report: Path) -> dict[str, float]:
    from xml.etree import ElementTree  # our own file, just written

    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        found[f"{case.get('classname')}::{case.get('name')}"] = float(case.get("time") or 0)
    return found


class Reach:
    """Which tests reach what, from the data of `reach`."""

    def __init__(self) -> None:
        times = json.loads(TIMES.read_text())
        self.seconds = lambda test: times.get(junit_name(test), 1.0)
        self.lines: dict[str, dict[str, set[int]]] = {}
        from coverage.numbits import numbits_to_nums

        with sqlite3.connect(DATA) as data:
            rows = data.execute(
                "select path, context, arc.fromno, arc.tono from arc join file on file.id = file_id"
                " join context on context.id = context_id"
            )
            for path, context, start, end in rows:
                test = named(context)
                if test:
                    file = path[path.index(str(SOURCE)) :]
                    reached = self.lines.setdefault(file, {}).setdefault(test, set())
                    reached.update(line for line in (start, end) if line > 0)
        del numbits_to_nums

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests that reach the mutant's line, its module or its folder, the quickest first."""
        text = (ROOT / mutant.file).read_text()
        inside = {line for first, last in functions(text) for line in range(first + 1, last + 1)}
        here = self.lines.get(mutant.file, {})
        last = mutant.line + mutant.before.count("\n")
        found = {
            test for test, lines in here.items() if any(mutant.line <= n <= last for n in lines)
        }
        found = found or {test for test, lines in here.items() if lines & inside}
        if not found:
            folder = str(Path(mutant.file).parent)
            near = [tests for file, tests in self.lines.items() if file.startswith(folder)]
            found = {test for tests in near for test in tests}
        return sorted(found, key=self.seconds)


def named(context: str) -> str:
    """The test of a context: "a|b" has the process's own and pytest's, "(call)" follows either."""
    for part in reversed(context.split("|")):
        test = part.removesuffix("|run").removesuffix("|setup").removesuffix("|teardown")
        test = test.split(" (")[0] if test.endswith(("(call)", "(setup)", "(teardown)")) else test
        if "::" in test:
            return test
    return ""


def junit_name(test: str) -> str:
    file, _, rest = test.partition("::")
    *classes, name = rest.split("::") if "[" not in rest else [rest]
    return "::".join([".".join([file.removesuffix(".py").replace("/", "."), *classes]), name])


def functions(text: str) -> Iterator[tuple[int, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.end_lineno or node.lineno


def run(file: Path, out: Path, limit: float) -> None:
    """Try each mutant in a copy of the tree, two at a time; go on where an earlier run stopped."""
    mutants = [Mutant(**record) for record in json.loads(file.read_text())]
    known = json.loads(out.read_text()) if out.exists() else {}
    reached = Reach()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for index in range(os.cpu_count() or 1):
            copies.put(copied(Path(folder) / str(index)))

        def attempt(mutant: Mutant) -> None:
            tree = copies.get()
            began = time.monotonic()
            try:
                known[str(mutant)] = outcome = tried(tree, mutant, reached.tests(mutant), limit)
            finally:
                copies.put(tree)
            out.write_text(json.dumps(known, indent=1))
            print(f"{outcome:<60}  {time.monotonic() - began:5.0f} s  {mutant}", flush=True)

        list(pool.map(attempt, (mutant for mutant in mutants if str(mutant) not in known)))
    caught = sum(known[str(mutant)].startswith("caught") for mutant in mutants)
    print(f"{caught} of {len(mutants)} caught")


def copied(tree: Path) -> Path:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout.splitlines()  # fmt: skip
    for name in listed:
        if (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    (tree / ".venv").symlink_to(ROOT / ".venv")
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    return tree


def tried(tree: Path, mutant: Mutant, tests: list[str], limit: float) -> str:
    """The first test that fails with the mutant in place, or that none of them did."""
    if not tests:
        return "survived: no test reaches it"
    file, listed = tree / mutant.file, tree / ".tests"
    whole = file.read_text()
    file.write_text(changed(tree, mutant))
    listed.write_text("\n".join(tests))
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"@{listed}"]
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True,
                              timeout=limit, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"caught: {len(tests)} tests did not end"
    finally:
        file.write_text(whole)
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode == 0:
        return f"survived {len(tests)} tests"
    return (
        f"caught by {failed[0].split(' - ')[0].split(' ', 1)[1] if failed else done.stdout[-300:]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("reach")
    drawing = commands.add_parser("draw")
    drawing.add_argument("number", type=int)
    drawing.add_argument("--seed", type=int, default=0)
    drawing.add_argument("--out", type=Path, required=True)
    running = commands.add_parser("run")
    running.add_argument("file", type=Path)
    running.add_argument("--out", type=Path)
    running.add_argument("--limit", type=float, default=1800, help="seconds for one mutant")
    chosen, rest = parser.parse_known_args()
    if chosen.command == "reach":
        reach(rest)
    elif chosen.command == "draw":
        mutants = draw(chosen.number, chosen.seed)
        chosen.out.write_text(json.dumps([asdict(mutant) for mutant in mutants], indent=1))
    else:
        out = chosen.out or chosen.file.with_suffix(".outcome.json")
        run(chosen.file.resolve(), out.resolve(), chosen.limit)


if __name__ == "__main__":
    main()
