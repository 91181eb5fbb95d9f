"""Doctests in docstrings, as code on the site: without a fence, `>>>` would be quotations."""

import re

import griffe

DOCTEST = re.compile(r"(?:^>>> .*\n?(?:^(?!$).*\n?)*)+", re.M)


class Fencing(griffe.Extension):
    """Put a fence around every doctest."""

    def on_object(self, *, obj, **_):
        """Change the docstring of a function, a class or a module."""
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(r"```pycon\n\g<0>\n```\n", obj.docstring.value)
