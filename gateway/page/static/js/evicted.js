// The table of evicted pages: for which tenant, and of which. It is shown after the first eviction.

import { units } from "./format.js";
import { Rows } from "./rows.js";

export class Evicted {
  constructor(container, table) {
    this.container = container;
    this.rows = new Rows(table, COLUMNS, "No page was evicted.");
  }

  show(evicted) {
    const pairs = Object.entries(evicted).flatMap(([taker, owners]) =>
      Object.entries(owners).map(([owner, pages]) => [JSON.stringify([taker, owner]), { taker, owner, pages }]),
    );
    this.container.hidden = pairs.length === 0;
    this.rows.update(pairs.sort(([, one], [, other]) => other.pages - one.pages));
  }
}

const COLUMNS = [
  { isHead: true, className: "name", text: (pair) => pair.taker || "others" },
  { className: "name", text: (pair) => pair.owner || "others" },
  { className: "number", text: (pair) => units(pair.pages) },
];
