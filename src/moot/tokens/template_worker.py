"""Renders conversations with a chat template, in a process of its own with little time and memory. Knows nothing of
moot.

Started by `template_trial.py` with a JSON object on its input: template, values, conversations, seconds. A template is
a program of somebody else's: it may loop, or write without end. What it raises is of no interest here.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

MEGABYTES, MOST_CHARACTERS = 512, 10_000_000


def main() -> None:
    job = json.loads(sys.stdin.buffer.read())
    from transformers.utils.chat_template_utils import render_jinja_template

    limit(job["seconds"])
    for messages in job["conversations"]:
        for start in (True, False):
            values = {"chat_template": job["template"], "add_generation_prompt": start, **job["values"]}
            try:
                (text,), _ = render_jinja_template([messages], **values)
            except MemoryError:
                sys.exit(f"takes more than {MEGABYTES} MiB")
            except Exception:
                continue
            if len(text) > MOST_CHARACTERS:
                sys.exit(f"writes {len(text)} characters")


def limit(seconds: int) -> None:
    """From here on: what the libraries took does not count."""
    most = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2])) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if (mapped := Path("/proc/self/statm")).exists():
        most = int(mapped.read_text().split()[0]) * resource.getpagesize() + (MEGABYTES << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    main()
