"""Break the source at random places, one at a time, and see whether a test notices.

    python tests/mutations.py reach                    # which test reaches which line
    python tests/mutations.py draw 60 --seed 1 --out mutants.json
    python tests/mutations.py run mutants.json         # a line each, and the outcomes in a file

Only the tests that reach a mutant run, the quickest first, and the others of their files, until one
fails. Compiled kernels leave no trace of their lines, and neither do lines that run at import: for
those, the tests that reach the module run, or else its folder. A mutant is kept as the text before
and after, so that the same ones can be tried with other tests. (mutmut changes no decorated
function, and so no kernel; cosmic-ray runs the whole suite for each mutant.)
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = "src/pacbayes_control"
REACH, TIMES = ROOT / ".coverage", ROOT / ".test-times.json"
COVERAGE = f"""
[run]
data_file = {REACH}
source = pacbayes_control
branch = true
parallel = true
context = ${{PYTEST_CURRENT_TEST-}}
"""  # a process that a test starts counts for the test
CONTEXT = re.compile(r"(.*?::.*?)(\|(run|setup|teardown)| \((call|setup|teardown)\))?")
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor"}
PAIRS: list[tuple[type, type]] = [
    (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn), (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.And, ast.Or),
    (ast.BitAnd, ast.BitOr),
]  # fmt: skip
SWAPS = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
SWAPS |= {ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult}


# ---- mutants ------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Mutant:
    """One change of the source: `before`, at this place of the file, becomes `after`."""

    file: str
    line: int
    column: int
    before: str
    after: str

    def __str__(self) -> str:
        before, after = (" ".join(text.split())[:60] for text in (self.before, self.after))
        return f"{self.file}:{self.line}  {before}  →  {after}"

    def applied(self, tree: Path) -> str:
        """The text of the file in this tree, changed."""
        text = (tree / self.file).read_text()
        above = text.splitlines(keepends=True)[: self.line - 1]
        place = sum(map(len, above)) + self.column
        if not text.startswith(self.before, place):
            raise SystemExit(f"{self}: the source there is another now")
        return text[:place] + self.after + text[place + len(self.before) :]


def mutants_of(file: Path) -> Iterator[Mutant]:
    """Every mutant of a file but those of what only speaks: annotations, docstrings, f-strings."""
    text = file.read_bytes()
    starts = [0, *accumulate(map(len, text.splitlines(keepends=True)))]
    tree = ast.parse(text)
    told = {
        id(inner) for node in ast.walk(tree) for part in spoken(node) for inner in ast.walk(part)
    }
    for node in ast.walk(tree):
        for part, after in [] if id(node) in told else variants(node):
            line, place = starts[part.lineno - 1], starts[part.lineno - 1] + part.col_offset
            end = starts[(part.end_lineno or part.lineno) - 1] + (part.end_col_offset or 0)
            column, before = len(text[line:place].decode()), text[place:end].decode()
            yield Mutant(str(file.relative_to(ROOT)), part.lineno, column, before, after)


def spoken(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.arg(annotation=ast.expr() as part) | ast.AnnAssign(annotation=part):
            yield part
        case ast.FunctionDef(decorator_list=parts, returns=returned):
            yield from (*parts, *([returned] if returned else []))
        case ast.Expr(value=ast.Constant()) | ast.JoinedStr():
            yield node
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            yield node


def variants(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """What may be replaced in a node, and by what."""
    other = copy(node)
    match other:
        case ast.Compare(ops=[sign]) if type(sign) in SWAPS:
            other.ops = [SWAPS[type(sign)]()]
            yield node, f"({ast.unparse(other)})"
        case ast.BinOp(op=sign) | ast.BoolOp(op=sign) if type(sign) in SWAPS:
            other.op = SWAPS[type(sign)]()
            yield node, f"({ast.unparse(other)})"
        case ast.AugAssign(op=sign) if type(sign) in SWAPS:
            other.op = SWAPS[type(sign)]()
            yield node, ast.unparse(other)
        case ast.UnaryOp(operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield node, str(value + 1)
        case ast.Name(id=name, ctx=ast.Load()) if name in NAMES:
            yield node, NAMES[name]
        case ast.Return(value=ast.expr()) if ast.unparse(other) != "return None":
            yield node, "return None"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield node.test, f"(not ({ast.unparse(test)}))"
        case ast.Raise() | ast.Expr(value=ast.Call()):
            yield node, "pass"


@cache
def every_mutant() -> list[Mutant]:
    files = sorted((ROOT / SOURCE).rglob("*.py"))
    return sorted({mutant for file in files for mutant in mutants_of(file)})


def draw(number: int, seed: int) -> list[Mutant]:
    """A random sample of all mutants, no two on one line."""
    shuffled = random.Random(seed).sample(every_mutant(), len(every_mutant()))
    by_line = {(mutant.file, mutant.line): mutant for mutant in reversed(shuffled)}
    return list(by_line.values())[::-1][:number]


# ---- which tests reach what ---------------------------------------------------------------------

seconds: Counter[str] = Counter()


def pytest_configure(config: pytest.Config) -> None:
    """Have the processes that tests start measured too."""
    if hasattr(config, "workerinput"):
        os.environ["COVERAGE_PROCESS_START"] = config.option.cov_config


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seconds[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        TIMES.write_text(json.dumps(seconds))


def measure(arguments: list[str]) -> None:
    """Run the suite under coverage, which knows the test that runs, and print what is covered."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "coveragerc"
        config.write_text(COVERAGE)
        options = ["-q", "-n", "logical", "-p", "mutations", "--cov=pacbayes_control"]
        options += [f"--cov-config={config}", "--cov-context=test", "--cov-report="]
        path = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, *arguments],
            cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, check=False,
        )  # fmt: skip
    totals = ROOT / ".coverage-totals.json"
    report = [sys.executable, "-m", "coverage", "json", "-q", "-o", str(totals)]
    subprocess.run(report, cwd=ROOT, check=True)
    found = json.loads(totals.read_text())["totals"]
    for what, done, of in (
        ("statements", found["covered_lines"], found["num_statements"]),
        ("branches", found["covered_branches"], found["num_branches"]),
    ):
        print(f"{what}: {done} of {of}, {done / of:.2%}")


class Reach:
    """Which tests reach which lines, from what `reach` left."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = json.loads(TIMES.read_text())
        self.lines: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        with sqlite3.connect(REACH) as data:
            for path, context, *ends in data.execute(
                "select path, context, fromno, tono from arc"
                " join file on file.id = file_id join context on context.id = context_id"
            ):
                if SOURCE in path and (test := CONTEXT.fullmatch(context)):
                    self.lines[path[path.index(SOURCE) :]][test[1]].update(n for n in ends if n > 0)

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests that reach the mutant's lines, its module or its folder, the quickest first.

        Then all others of their files: what a file learns once counts for the first that asks.
        """
        tree = ast.parse((ROOT / mutant.file).read_text())
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        bodies = {n for f in functions for n in range(f.body[0].lineno, (f.end_lineno or 0) + 1)}
        last = mutant.line + mutant.before.count("\n")
        here = {n for n in range(mutant.line, last + 1) if n in bodies}
        folder = str(Path(mutant.file).parent)
        near = {
            test for file, tests in self.lines.items() if file.startswith(folder) for test in tests
        }
        found = self._at(mutant.file, here) or self._at(mutant.file, bodies) or near
        files = {test.split("::")[0] for test in found}
        others = {test for test in self.seconds if test.split("::")[0] in files} - found
        return [*self._quickest(found), *self._quickest(others)]

    def _quickest(self, tests: set[str]) -> list[str]:
        return sorted(tests, key=lambda test: self.seconds.get(test, 1.0))

    def _at(self, file: str, lines: set[int]) -> set[str]:
        return {test for test, reached in self.lines[file].items() if reached & lines}


# ---- trying them --------------------------------------------------------------------------------


def run(file: Path, out: Path, limit: float) -> None:
    """Try each mutant in a copy of the tree, one a core; go on where an earlier run stopped."""
    mutants = [Mutant(**record) for record in json.loads(file.read_text())]
    known = json.loads(out.read_text()) if out.exists() else {}
    reach, cores = Reach(), os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(cores) as pool:
        trees: SimpleQueue[Path] = SimpleQueue()
        for index in range(cores):
            trees.put(copied(Path(folder) / str(index)))

        def attempt(mutant: Mutant) -> None:
            tree, began = trees.get(), time.monotonic()
            known[str(mutant)] = outcome = tried(tree, mutant, reach.tests(mutant), limit)
            trees.put(tree)
            out.write_text(json.dumps(known, indent=1))
            print(f"{mutant}\n    {outcome} ({time.monotonic() - began:.0f} s)", flush=True)

        list(pool.map(attempt, (mutant for mutant in mutants if str(mutant) not in known)))
    caught = sum(known[str(mutant)].startswith("caught") for mutant in mutants)
    print(f"{caught} of {len(mutants)} caught")


def copied(tree: Path) -> Path:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(lambda name: (ROOT / name).is_file(), listed.stdout.splitlines()):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name)
    return tree


def tried(tree: Path, mutant: Mutant, tests: list[str], limit: float) -> str:
    """The first test that fails with the mutant in place, or how many did not."""
    if not tests:
        return "survived: no test reaches it"
    file, listed = tree / mutant.file, tree / ".tests"
    whole = file.read_text()
    file.write_text(mutant.applied(tree))
    try:
        for names in (tests, list(dict.fromkeys(test.split("[")[0] for test in tests))):
            listed.write_text("\n".join(names))
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", f"@{listed}"],
                cwd=tree, env=os.environ | {"PYTHONPATH": str(tree / "src")},
                capture_output=True, text=True, timeout=limit, check=False,
            )  # fmt: skip
            if done.returncode != pytest.ExitCode.USAGE_ERROR:
                break  # else a case is named by something that cannot be asked for
    except subprocess.TimeoutExpired:
        return f"caught: {len(tests)} tests did not end in {limit:.0f} s"
    finally:
        file.write_text(whole)
    if done.returncode == pytest.ExitCode.OK:
        return f"survived {len(tests)} tests"
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", done.stdout, re.M)
    if not failed:
        return f"could not be tried: {done.stdout[-200:]}{done.stderr[-200:]}"
    return f"caught by {failed[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("reach", help="run the suite, or what pytest's arguments say, and record")
    drawing = commands.add_parser("draw", help="a random sample of mutants")
    drawing.add_argument("number", type=int)
    drawing.add_argument("--seed", type=int, default=0)
    drawing.add_argument("--out", type=Path, required=True)
    running = commands.add_parser("run", help="try them")
    running.add_argument("file", type=Path)
    running.add_argument("--out", type=Path, help="outcomes [default: beside the file]")
    running.add_argument("--limit", type=float, default=1800, help="seconds for one mutant")
    chosen, rest = parser.parse_known_args()
    if chosen.command == "reach":
        measure(rest)
    elif chosen.command == "draw":
        mutants = map(asdict, draw(chosen.number, chosen.seed))
        chosen.out.write_text(json.dumps(list(mutants), indent=1))
    else:
        run(chosen.file, chosen.out or chosen.file.with_suffix(".outcomes.json"), chosen.limit)


if __name__ == "__main__":
    main()
