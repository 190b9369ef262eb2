"""Findings as Markdown text."""

from collections.abc import Iterable

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
