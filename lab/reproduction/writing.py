"""Findings as Markdown text."""

import re
from collections.abc import Iterable, Mapping

from lab.reproduction.item import Finding, Item, Report, Study

VERDICTS = {True: "yes", False: "**no**", None: "not judged"}


def table(findings: Iterable[Finding]) -> str:
    """Return a table with each claim, the paper's and our result, and whether the conclusions agree."""
    lines = ["| claim | paper says | we get | same conclusion? | yes when |", "|---|---|---|---|---|"]
    for finding in findings:
        verdict = VERDICTS[finding.agrees] + ("" if finding.agrees else f": {finding.because}")
        lines.append(f"| {finding.claim} | {finding.paper} | {finding.ours} | {verdict} | {finding.rule or '-'} |")
    return "\n".join(lines)


def section(item: Item, study: Study, report: Report) -> str:
    """Return the item's section of lab/reproduction.md."""
    return f"## {item.name}\n\n{item.source}. {study.setup}\n\n{table(report.findings)}\n"


def titles(document: str) -> list[str]:
    """Return the names of the items that have a section in lab/reproduction.md."""
    return re.findall(r"^## (\S+)$", document, re.MULTILINE)


def replaced(document: str, sections: Mapping[str, str]) -> str:
    """Return the document with other sections for some items, given by name."""
    parts = re.split(r"^(?=## )", document, flags=re.MULTILINE)
    texts = [sections.get(part.removeprefix("## ").partition("\n")[0], part.rstrip("\n") + "\n") for part in parts]
    return "\n".join(texts)
