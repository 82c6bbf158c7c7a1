"""A report as a table: for a terminal, for Markdown, for LaTeX. One list of cells, three ways to write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from moot.evaluate.report import Report, ReportRow
from moot.util.safe_text import counted

COLUMNS = (
    ("format", "format"),
    ("pass@k", "pass@k"),
    ("avg@k", "avg@k"),
    ("cons@k", "cons@k"),
    ("round_1", "round 1"),
    ("round_1_plurality", "round 1 plurality"),
    ("winner", "winner"),
    ("judge", "judges right"),
    ("decided", "verdicts"),
    ("comparisons", "votes given"),
    ("opponents", "others right"),
    ("preferred", "votes won"),
    ("score", "judge's score"),
    ("flips", "order flips"),
    ("cut", "cut"),
)
"""Metrics beside accuracy, as they are headed; a column that no row has is left out."""

LEGEND = {
    "accuracy": "of the answer the mode gives, with its 95% interval (bootstrap over questions)",
    "format": "answers that can be graded",
    "pass@k": "at least one of the k answers is right",
    "avg@k": "the k answers' average",
    "cons@k": "the answer most of the k give is right",
    "round 1": "the agents' average after the first round of the same debates: what later rounds have to beat",
    "round 1 plurality": "the answer most agents give in the first round is right: counting alone, without a second "
    "round",
    "winner": "the agent whom the peers' votes prefer is right",
    "judges right": "votes between a right and a wrong answer that prefer the right one",
    "verdicts": "debates in which the judge found one side right; without a verdict it is not right",
    "votes given": "of the turns that were asked to compare others, those that gave a vote",
    "others right": "the opponents' average",
    "votes won": "votes between the policy and an opponent that prefer the policy; of one advocate alone, verdicts "
    "that believe it",
    "judge's score": "of mode wins: the mean probability of the policy's answer, over both orders; accuracy is the "
    "share of questions in which it is above one half",
    "order flips": "pairs whose verdict changes with the order",
    "cut": "turns and answers that were cut at their limit of tokens",
    "tokens": "generated per question",
}


def caption(report: Report) -> str:
    """What was measured, on what, and how."""
    s = report.settings
    who = s.get("model") or s["policy"] or "the policy"
    who += f" (step {s['step']} of {s['run']})" if s.get("run") else ""
    debates = (
        f"debates of {s['num_agents']} agents and {counted(s['max_rounds'], 'round')}, {s['protocol']['contract']}"
    )
    count = counted(s["questions"], "question")
    debates += f", judged by {s['judge'] or 'the policy'}" if "judge" in s else ""
    return f"{who} on {s['task']}: {count}, {debates}; at most {s['max_tokens']} tokens per turn, seed {s['seed']}."


def percent(number: Mapping[str, float] | None, bounds: bool = False) -> str:
    if number is None:
        return "–"
    value = f"{100 * number['value']:.1f}"
    return f"{value} [{100 * number['low']:.1f}, {100 * number['high']:.1f}]" if bounds else value


def signed(difference: Mapping[str, Any] | None) -> str:
    if difference is None:
        return "–"
    value, low, high = (100 * difference[end] for end in ("value", "low", "high"))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"


def p_value(difference: Mapping[str, Any] | None) -> str:
    if difference is None:
        return "–"
    return "<0.001" if difference["p"] < 0.001 else f"{difference['p']:.3f}"


def cells(report: Report) -> tuple[list[str], list[list[str]]]:
    """The header and the rows; shares are percentages."""
    rows = report.rows
    shown = [(metric, head) for metric, head in COLUMNS if any(row.metrics.get(metric) for row in rows)]
    versus = [f"minus {rows[0].name}", "p"] if len(rows) > 1 else []
    header = ["mode", "k", "accuracy", *versus, *(head for _, head in shown), "tokens"]
    return header, [_cells(row, shown, bool(versus)) for row in rows]


def _cells(row: ReportRow, shown: Sequence[tuple[str, str]], versus: bool) -> list[str]:
    against = [signed(row.difference), p_value(row.difference)] if versus else []
    rest = [percent(row.metrics.get(metric)) for metric, _ in shown]
    return [
        row.name,
        str(row.k),
        percent(row.metrics.get("accuracy"), bounds=True),
        *against,
        *rest,
        f"{row.tokens:,.0f}",
    ]


WORDS = ("mode", "run", "what", "check")
MAIN = (*WORDS, "k", "seeds", "accuracy", "p", "tokens", "first", "last")


WIDE = 6
"""Columns beside the words that fit into 80 characters."""


def rich_tables(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Table]:
    """What matters first, then the rest: together they are too wide for a terminal."""
    aside = ("tokens",) if "run" in header else ()
    main = [i for i, head in enumerate(header) if (head in MAIN and head not in aside) or head.startswith("minus ")]
    words = [i for i, head in enumerate(header) if head in WORDS]
    rest = [i for i in range(len(header)) if i not in words and i not in main]

    def part(columns: Sequence[int], gap: int) -> Table:
        return rich_table([header[i] for i in columns], [[row[i] for i in columns] for row in rows], gap)

    return [part(main, 2), *(part([*words, *rest[i : i + WIDE]], 2) for i in range(0, len(rest), WIDE))]


def rich_table(header: Sequence[str], rows: Sequence[Sequence[str]], gap: int = 2) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, gap, 0, 0))
    for head in header:
        table.add_column(Text(head), justify="left" if head in WORDS else "right", no_wrap=head == "mode")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [_line(header), _line(["---", *("---:" for _ in header[1:])]), *(_line(row) for row in rows)]
    return "\n".join(lines) + "\n"


def _line(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "\\": "\\textbackslash{}",
    "–": "--",
    "±": "$\\pm$",
    "→": "$\\rightarrow$",
}


def latex(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """A `tabular` with the rules of booktabs, ready to paste."""

    def line(row: Sequence[str]) -> str:
        return " & ".join("".join(_SPECIAL.get(c, c) for c in cell) for cell in row) + " \\\\"

    body = "\n".join(line(row) for row in rows)
    return (
        f"% {caption}\n\\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}\n\\toprule\n{line(header)}\n\\midrule\n{body}\n"
        "\\bottomrule\n\\end{tabular}\n"
    )


def legend(header: Sequence[str]) -> list[str]:
    return [f"{name}: {LEGEND[name]}" for name in header if name in LEGEND]
