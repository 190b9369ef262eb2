"""`python docs/changelog.py VERSION [DATE]` releases the fragments in changes/: moves their lines into CHANGELOG.md.

The lines stand in the order of the files' names. DATE is that of today unless it is given (YYYY-MM-DD).
"""

import argparse
import datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
RELEASE = "\n## ["


def fragments(folder: Path) -> list[Path]:
    """Return the files of changes that no release has."""
    return sorted(folder.glob("*.md"))


def joined(changelog: str, lines: list[str], version: str, date: datetime.date) -> str:
    """Return the changelog with a release of these lines on top; raise ValueError where it has the version."""
    if f"{RELEASE}{version}]" in changelog:
        raise ValueError(f"CHANGELOG.md has {version} already")
    before, heading, releases = changelog.partition(RELEASE)
    changes = "".join(line.strip().replace("](../", "](") + "\n" for line in lines)
    return f"{before}{RELEASE}{version}] - {date}\n\n{changes}{heading}{releases}"


def main() -> None:
    """Write CHANGELOG.md and remove the fragments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version")
    parser.add_argument("date", nargs="?", type=datetime.date.fromisoformat, default=datetime.date.today())
    args = parser.parse_args()
    changelog, files = ROOT / "CHANGELOG.md", fragments(ROOT / "changes")
    changelog.write_text(joined(changelog.read_text(), [file.read_text() for file in files], args.version, args.date))
    for file in files:
        file.unlink()


if __name__ == "__main__":
    main()
