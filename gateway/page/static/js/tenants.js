// The table of tenants, which is shown where there are several.

import { percent, units } from "./format.js";
import { Rows } from "./rows.js";

export class Tenants {
  constructor(container, table) {
    this.container = container;
    this.rows = new Rows(table, COLUMNS, "There is one tenant.");
  }

  show(tenants) {
    const ranked = Object.entries(tenants).sort(([, one], [, other]) => other.minute - one.minute);
    this.container.hidden = ranked.length === 0;
    this.rows.update(ranked);
  }
}

const COLUMNS = [
  { isHead: true, className: "name", text: (_, name) => name },
  { className: "number", text: (tenant) => units(tenant.users) },
  { className: "number", text: (tenant) => percent(tenant.now) },
  { className: "number", text: (tenant) => percent(tenant.minute) },
  { className: "number", text: (tenant) => units(tenant.service) },
  { className: "number", text: (tenant) => units(tenant.waiting) },
  { className: "number", text: (tenant) => units(tenant.running) },
  { className: "number", text: (tenant) => units(tenant.pages) },
  { className: "number", text: (tenant) => units(tenant.part) },
];
