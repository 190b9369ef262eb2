// What the charts show, as a table.

import { percent, units } from "./format.js";
import { Rows } from "./rows.js";

export class ChartTable {
  constructor(details, table) {
    this.details = details;
    this.rows = new Rows(
      table,
      [
        { isHead: true, className: "name", text: (_, name) => name },
        { className: "number", text: (item) => percent(item.now) },
        { className: "number", text: (item) => units(item.ahead) },
        { className: "number", text: (item) => percent(item.part) },
      ],
      "No client has requests now.",
    );
    details.addEventListener("toggle", () => this.show(this.state, this.names));
  }

  show(state, names) {
    this.state = state;
    this.names = names;
    if (!this.details.open || state === undefined) {
      return;
    }
    const { bound } = state.fairness;
    const busy = names.filter((name) => state.clients[name].waiting > 0 || state.clients[name].running > 0);
    this.rows.update(
      busy.map((name) => {
        const { now, ahead } = state.clients[name];
        return [name, { now, ahead, part: bound && ahead !== undefined ? ahead / bound : undefined }];
      }),
    );
  }
}
