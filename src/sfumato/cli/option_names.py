"""Messages of the library in the words of the command line: `clip_norm=2` is `--clip-norm 2` there.

What refuses a number does not know who gave it. Names of several words that are options of the command are written as
options, those of parts with their points, and those of one word where a message asks for them; what stands in quotes,
in a path or in a call of Python is left alone.

>>> names = ["clients_per_round", "head_classes", "rounds"]
>>> with_option_names("lower clients_per_round, or use head_classes=global", names)
'lower --clients-per-round, or use --head-classes global'
>>> with_option_names("numbers need both ends of their range; give low and high", ["low", "high"])
'numbers need both ends of their range; give --low and --high'
>>> with_option_names("leave out prefix_cache (--prefix-cache)", ["prefix_cache"])
'leave out --prefix-cache'
>>> with_option_names("clipping.quantile must be < 1, got 2", ["clipping.quantile"])
'--clipping.quantile must be < 1, got 2'
>>> with_option_names("runs/clip_norm.json and 'clip_norm' and models.fit(clip_norm=2)", ["clip_norm"])
"runs/clip_norm.json and 'clip_norm' and models.fit(clip_norm=2)"
"""

import re
from collections.abc import Collection

_TWICE = re.compile(r"(--[a-z-]+) \(\1\)")


def with_option_names(message: str, names: Collection[str]) -> str:
    """A message with options in the place of fields.

    Args:
        message: as the library words it.
        names: of the command's fields; those of one word are words, but behind "give" and before a value.
    """
    long = sorted((name for name in names if "_" in name or "." in name), key=len, reverse=True)
    short = "|".join(re.escape(name) for name in names if name not in long)
    if short:
        asked = re.compile(rf"\bgive ({short})(?: and ({short}))?(?=[,;]|$)")
        message = asked.sub(
            lambda match: "give " + " and ".join(f"--{name}" for name in match.groups() if name), message
        )
        message = re.sub(rf"(?<![\w./\\'\"=-])({short})=(?=\w)", r"--\1 ", message)
    if not long:
        return message
    before, after = r"(?<![\w./\\'\"=-])(?<!\w\()", r"(?:(=)(?=[\w\"'-])|(?![\w./\\'\"=-])|(?=\.(?:\s|$)))"
    found = re.compile(f"{before}({'|'.join(map(re.escape, long))}){after}")
    message = found.sub(lambda match: f"--{match[1].replace('_', '-')}{' ' if match[2] else ''}", message)
    return _TWICE.sub(r"\1", message)
