// The queue: each cell is a request that waits, in the colour of its client. Where there are few workers, each has a row.

import { counted, inOrder, units } from "./format.js";
import { element, setClass, setPart, setText } from "./element.js";

const CELL = 8; // pixels
const LABELS = 190; // pixels beside the cells
const MOST_ROWS = 8;

export class Queue {
  constructor(container, text, palette) {
    this.container = element("div", { className: "queue", parent: container });
    this.text = text;
    this.palette = palette;
    this.rows = new Map();
    this.width = 0; // asked for when it changes only: to ask in an update would lay the page out twice
    new ResizeObserver(([entry]) => (this.width = entry.contentRect.width)).observe(container);
  }

  show(state, names) {
    const queues = rowsOf(state, names);
    const most = Math.max(1, ...Object.values(queues).map(total));
    const cells = Math.max(10, Math.floor((this.width - LABELS) / CELL) - names.length);
    const each = Math.ceil(most / cells);
    const waiting = Object.values(queues).reduce((sum, queue) => sum + total(queue), 0);
    const scale = each > 1 ? `A cell is ${each} requests of one client, rounded up.` : "A cell is a request.";
    setText(this.text, waiting > 0 ? `${counted(waiting, "request")} wait${waiting === 1 ? "s" : ""}. ${scale}` : "No request waits.");
    for (const [name, row] of this.rows) {
      if (!(name in queues)) {
        row.label.remove();
        row.line.remove();
        this.rows.delete(name);
      }
    }
    Object.keys(queues)
      .sort(inOrder)
      .forEach((name, index) => this.showRow(name, index, queues[name], names, each));
  }

  showRow(name, index, queue, names, each) {
    const { runs, count, label: title, line } = this.rows.get(name) ?? this.addRow(name);
    if (this.container.children[2 * index] !== title) {
      this.container.insertBefore(title, this.container.children[2 * index] ?? null);
      this.container.insertBefore(line, title.nextSibling);
    }
    const waiting = names.filter((client) => queue[client] > 0);
    while (runs.children.length > waiting.length) {
      runs.lastChild.remove();
    }
    waiting.forEach((client, index) => {
      const run = runs.children[index] ?? element("i", { parent: runs });
      setClass(run, `cells ${this.palette.className(client)}`);
      setPart(run, "--cells", String(Math.ceil(queue[client] / each)));
      run.title = `${client}: ${queue[client]}`;
    });
    setText(count, units(total(queue)));
    const said = waiting.slice(0, 5).map((client) => `${client} ${queue[client]}`);
    const label = `${name}: ${total(queue)} waiting. ${said.join(", ")}`;
    if (line.getAttribute("aria-label") !== label) {
      line.setAttribute("aria-label", label);
    }
  }

  addRow(name) {
    const label = element("span", { text: name, parent: this.container });
    const line = element("div", { className: "runs", parent: this.container });
    line.setAttribute("role", "img");
    const runs = element("div", { className: "runs", parent: line });
    const row = { label, line, runs, count: element("span", { className: "count", parent: line }) };
    this.rows.set(name, row);
    return row;
  }
}

function rowsOf(state, names) {
  const workers = Object.keys(state.queues);
  if (workers.length > 0 && workers.length <= MOST_ROWS) {
    return state.queues;
  }
  const all = Object.create(null);
  for (const name of names) {
    all[name] = state.clients[name].waiting;
  }
  return { "all workers": all };
}

function total(queue) {
  return Object.values(queue).reduce((sum, waiting) => sum + waiting, 0);
}
