// The body of a table whose rows have keys. Only what has changed is touched, so that focus and selection stay.

import { element, setText } from "./element.js";

export class Rows {
  // Each column is {className, isHead, make(cell, key), show(cell, item, key)}; without `show`, `text(item, key)` is shown.
  constructor(table, columns, empty) {
    this.body = table.tBodies[0];
    this.columns = columns;
    this.rows = new Map();
    this.none = element("tr");
    const cell = element("td", { className: "empty", text: empty, parent: this.none });
    cell.colSpan = columns.length;
  }

  // `entries` are pairs of key and item, in order.
  update(entries) {
    const kept = new Set();
    let before = this.body.firstChild;
    for (const [key, item] of entries) {
      kept.add(key);
      const row = this.rows.get(key) ?? this.add(key);
      this.columns.forEach((column, index) => show(column, row.cells[index], item, key));
      if (row === before) {
        before = row.nextSibling;
      } else {
        this.body.insertBefore(row, before);
      }
    }
    for (const [key, row] of this.rows) {
      if (!kept.has(key)) {
        row.remove();
        this.rows.delete(key);
      }
    }
    if (kept.size === 0) {
      this.body.append(this.none);
    } else {
      this.none.remove();
    }
  }

  add(key) {
    const row = element("tr");
    for (const column of this.columns) {
      const cell = element(column.isHead ? "th" : "td", { className: column.className, parent: row });
      if (column.isHead) {
        cell.scope = "row";
      }
      column.make?.(cell, key);
    }
    this.rows.set(key, row);
    return row;
  }
}

function show(column, cell, item, key) {
  if (column.show) {
    column.show(cell, item, key);
  } else {
    setText(cell, column.text(item, key));
  }
}
