// The table of workers.

import { element, setClass, setPart, setText } from "./element.js";
import { inOrder, percent, seconds, units } from "./format.js";
import { Rows } from "./rows.js";

export class Workers {
  constructor(table) {
    this.rows = new Rows(table, COLUMNS, "No worker is attached.");
  }

  show(workers) {
    this.rows.update(Object.entries(workers).sort(([one], [other]) => inOrder(one, other)));
  }
}

const COLUMNS = [
  {
    isHead: true,
    className: "name",
    show(cell, worker, name) {
      setText(cell, name);
      cell.title = `${worker.models}, ${worker.policy}`;
    },
  },
  {
    make: (cell) => element("span", { parent: cell }),
    show(cell, worker) {
      setClass(cell.firstChild, worker.state === "overloaded" ? "badge over" : "");
      setText(cell.firstChild, worker.state);
    },
  },
  { className: "number", text: (worker) => units(worker.running) },
  { className: "number", text: (worker) => units(worker.waiting) },
  {
    className: "number",
    make(cell) {
      element("i", { parent: element("span", { className: "bar", parent: cell }) });
      element("span", { parent: cell });
    },
    show(cell, worker) {
      const used = worker.kv / worker.kv_tokens;
      setPart(cell.firstChild.firstChild, "--part", used.toFixed(3));
      setText(cell.lastChild, percent(used));
      cell.title = `${units(worker.kv)} of ${units(worker.kv_tokens)} tokens`;
    },
  },
  { className: "number", text: (worker) => percent(worker.hits) },
  { className: "number", text: (worker) => seconds(worker.step) },
  {
    className: "number",
    show(cell, worker) {
      setText(cell, worker.bound === undefined ? "none" : seconds(worker.bound_seconds));
      cell.title = worker.bound === undefined ? "the policy has no bound" : `${units(worker.bound)} units`;
    },
  },
  {
    className: "number",
    show(cell, worker) {
      setText(cell, worker.bound ? percent(worker.gap / worker.bound) : "–");
      cell.title = worker.levels ? `part of the bound at each level: ${worker.levels}` : "";
    },
  },
  {
    className: "served",
    show(cell, worker) {
      setText(cell, worker.served.join(" · "));
    },
  },
];
