"""Kernels are kept on disk where that is safe, and compiled all the same where it is not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import numba
import pytest
from numba.core import caching

from pacbayes_control.bounds import compiling
from pacbayes_control.bounds.compiling import compiled_once, private_folder

SOURCE = Path(__file__).parents[2] / "src"


def twice(x):
    return 2 * x


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine where only a temporary folder is writable."""
    usual = caching._CacheLocator.ensure_cache_path

    def ensure(self):
        if not self.get_cache_path().startswith(str(tmp_path)):
            raise PermissionError("read-only")
        usual(self)

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", ensure)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tmp_path.chmod(0o700)
    compiling._fallback.cache_clear()
    yield tmp_path
    compiling._fallback.cache_clear()


@pytest.mark.usefixtures("temporary")
def test_numba_alone_has_no_place_here():
    with pytest.raises(RuntimeError, match="no locator available"):
        numba.njit(cache=True)(twice)


def test_kernels_stay_in_a_private_temporary_folder_and_one_line_says_so(
    temporary: Path, capsys: pytest.CaptureFixture[str]
):
    before = os.environ.copy(), compiling.config.CACHE_DIR
    kernel, other = compiled_once()(twice), compiled_once(nogil=True)(twice)
    assert kernel(2) == other(2) == 4
    folder = temporary / f"pacbayes-control-{os.geteuid()}"
    assert kernel.stats.cache_path.startswith(str(folder))
    assert list(folder.rglob("*.nbc"))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert capsys.readouterr().err == (
        f"pbc: no cache folder is writable: compiled kernels are kept in {folder}\n"
    )
    assert before == (os.environ.copy(), compiling.config.CACHE_DIR)
    again = compiled_once()(twice)
    assert again(2) == 4
    assert sum(again.stats.cache_hits.values()) == 1


def another_users(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(mode=0o700)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    folder.rename(folder.with_name(f"pacbayes-control-{os.geteuid()}"))


def writable_by_others(folder: Path, _: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    folder.chmod(0o770)


def link(folder: Path, _: pytest.MonkeyPatch) -> None:
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "elsewhere")


def file(folder: Path, _: pytest.MonkeyPatch) -> None:
    folder.write_text("")


def within_a_shared_folder(folder: Path, _: pytest.MonkeyPatch) -> None:
    folder.parent.chmod(0o777)  # without the sticky bit: anybody could put another in its place


@pytest.mark.parametrize(
    "prepare", [another_users, writable_by_others, link, file, within_a_shared_folder]
)
def test_a_folder_that_others_could_have_written_to_is_not_used(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], prepare
):
    own = temporary / f"pacbayes-control-{os.geteuid()}"
    assert private_folder() == own
    own.rmdir()
    prepare(own, monkeypatch)
    assert private_folder() is None
    kernel = compiled_once()(twice)
    assert kernel(3) == 6
    assert kernel.stats.cache_path is None
    assert "kept nowhere: every process compiles them" in capsys.readouterr().err


def test_a_shared_temporary_folder_with_the_sticky_bit_will_do(temporary: Path):
    temporary.chmod(0o1777)
    assert private_folder() is not None


def test_every_kernel_of_the_library_that_is_kept_is_compiled_here():
    for path in SOURCE.rglob("*.py"):
        if path.name != "compiling.py":
            assert not re.search(r"jit\([^)]*cache\s*=", path.read_text(encoding="utf-8")), path
