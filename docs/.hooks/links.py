"""Links into the repository, on the site: to examples a copy, to modules their documentation.

On GitHub the same pages are read as they are, so that they hold ordinary links only.
"""

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
# - [`evaluate`, `mean_costs`](../src/pacbayes_control/rollouts/evaluation.py)
MODULE = re.compile(r"^- \[(.*)\]\(\.\./src/(.*)\.py\)$", re.M)


def on_files(files, config):
    """Add the examples to the site, as files to look at."""
    for path in sorted((ROOT / "examples").rglob("*")):
        if path.suffix in (".py", ".toml", ".csv"):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, content=path.read_bytes()))
    return files


def on_page_markdown(markdown, **_):
    """Have links lead to copies, and items of modules become what mkdocstrings reads."""
    return MODULE.sub(_documented, markdown).replace("](../examples/", "](examples/")


def _documented(item):
    module, names = item[2].replace("/", "."), re.findall(r"`(\w+)`", item[1])
    if len(names) == 1:
        return f"\n::: {module}.{names[0]}\n"
    members = f"      members: [{', '.join(names)}]\n" if names else ""
    return f"\n::: {module}\n    options:\n{members}      show_root_heading: false\n"
