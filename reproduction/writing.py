"""Findings as Markdown."""

from collections.abc import Iterable

from reproduction.item import Finding, Item, Report, Study

VERDICTS = {True: "yes", False: "**no**", None: "not judged"}


def table(findings: Iterable[Finding]) -> str:
    """Paper says, we get, same conclusion?"""
    lines = ["| claim | paper says | we get | same conclusion? | yes when |", "|---|---|---|---|---|"]
    for finding in findings:
        verdict = VERDICTS[finding.agrees] + ("" if finding.agrees else f": {finding.because}")
        lines.append(f"| {finding.claim} | {finding.paper} | {finding.ours} | {verdict} | {finding.rule or '-'} |")
    return "\n".join(lines)


def section(item: Item, study: Study, report: Report) -> str:
    """The item in docs/reproduction.md."""
    return f"## {item.name}\n\n{item.source}. {study.setup}\n\n{table(report.findings)}\n"
