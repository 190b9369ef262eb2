"""The ledger of budgets in a file, which processes of one machine share and which survives them."""

import asyncio
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from throttler.budget_leases import LedgerUnreachable
from throttler.core.budget_ledger import BudgetLedger, BudgetReply, BudgetRequest, entry_of

Result = TypeVar("Result")
BUSY_SECONDS = 1.0
SCHEMA = "CREATE TABLE IF NOT EXISTS budget (account TEXT, process TEXT, entry TEXT, PRIMARY KEY (account, process))"


class FileLedger:
    """One process' link to the ledger in the database `path`, which is made if there is none; see Ledger.

    Raise sqlite3.Error if the file is no such database.
    """

    def __init__(self, path: Path) -> None:
        self.name = secrets.token_hex(8)
        self._database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        # Every commit survives the process; a machine that loses its power may lose the last ones, never the file.
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.execute(SCHEMA)
        self._database.execute("SELECT account, process, entry FROM budget LIMIT 0")  # of another program

    async def ask(self, requests: Sequence[BudgetRequest]) -> Sequence[BudgetReply]:
        return await self._carry_out(lambda: [self._ask(request) for request in requests]) if requests else []

    async def restore(self, known: Iterator[tuple[BudgetRequest, dict[str, str]]]) -> None:
        """See Ledger: a file loses nothing, but an exchange may have been lost."""
        await self.ask([request for request, _ in known])

    async def forget(self, keys: Sequence[str]) -> None:
        rows = [(key, self.name) for key in keys]
        statement = "DELETE FROM budget WHERE account = ? AND process = ?"
        await self._carry_out(lambda: self._database.executemany(statement, rows))

    async def listen(self, recall: Callable[[str], None]) -> None:
        """See Ledger: nobody tells."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        self._database.close()

    def _ask(self, request: BudgetRequest) -> BudgetReply:
        key = request.account.key
        rows = self._database.execute("SELECT process, entry FROM budget WHERE account = ?", (key,)).fetchall()
        ledger = BudgetLedger()
        ledger.entries[key] = {process: entry_of(entry) for process, entry in rows}
        reply = ledger.ask(self.name, request)
        left = [(key, process) for process, _ in rows if process not in ledger.entries[key]]
        self._database.executemany("DELETE FROM budget WHERE account = ? AND process = ?", left)
        entry = ledger.entries[key][self.name].text()
        self._database.execute("INSERT OR REPLACE INTO budget VALUES (?, ?, ?)", (key, self.name, entry))
        return reply

    async def _carry_out(self, work: Callable[[], Result]) -> Result:
        """Do `work` in one transaction, in another thread."""

        def transact() -> Result:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                result = work()
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:  # not if a full disk has ended it
                    self._database.execute("ROLLBACK")
                raise
            return result

        try:
            return await asyncio.to_thread(transact)
        except sqlite3.Error as error:
            raise LedgerUnreachable(str(error)) from error
