// The table of clients and the bar of their shares.

import { counted, percent, shortened, units } from "./format.js";
import { element, setClass, setPart, setText } from "./element.js";
import { Rows } from "./rows.js";

const FEW = 12;
const SHARES = 7;

export class Clients {
  // `chosen(name)` is called when the user chooses a client.
  constructor(table, more, shares, palette, chosen) {
    this.palette = palette;
    this.more = more;
    this.shares = shares;
    this.showsAll = false;
    this.rows = new Rows(table, columns(palette, chosen), "No client has had a request yet.");
    more.addEventListener("click", () => {
      this.showsAll = !this.showsAll;
      this.show(this.clients, this.names);
    });
  }

  show(clients, names) {
    this.clients = clients;
    this.names = names;
    const shown = this.showsAll ? names : names.slice(0, FEW);
    this.rows.update(shown.map((name) => [name, clients[name]]));
    this.more.hidden = names.length <= FEW;
    setText(this.more, this.showsAll ? `Show the first ${FEW}` : `Show all ${counted(names.length, "client")}`);
    this.showShares();
  }

  showShares() {
    const served = this.names.filter((name) => this.clients[name].now > 0);
    const parts = served.slice(0, SHARES).map((name) => [this.palette.className(name), this.clients[name].now]);
    const rest = served.slice(SHARES).reduce((sum, name) => sum + this.clients[name].now, 0);
    if (rest > 0) {
      parts.push(["client-other", rest]);
    }
    while (this.shares.children.length < parts.length) {
      element("i", { parent: this.shares });
    }
    [...this.shares.children].forEach((child, index) => {
      const [className, part] = parts[index] ?? ["client-other", 0];
      setClass(child, className);
      setPart(child, "--part", part.toFixed(3));
    });
    const named = served.slice(0, SHARES).map((name) => `${shortened(name)} ${percent(this.clients[name].now)}`);
    const text = `Shares of the service now: ${named.join(", ") || "no client is served"}`;
    if (this.shares.getAttribute("aria-label") !== text) {
      this.shares.setAttribute("aria-label", text);
    }
  }
}

function columns(palette, chosen) {
  return [
    {
      isHead: true,
      className: "name",
      make(cell, name) {
        element("span", { className: "swatch", parent: cell });
        const button = element("button", { className: "link", text: shortened(name), parent: cell });
        button.type = "button";
        button.title = name;
        button.addEventListener("click", () => chosen(name));
      },
      show: (cell, _, name) => setClass(cell.firstChild, `swatch ${palette.className(name)}`),
    },
    {
      make: (cell) => element("span", { parent: cell }),
      show(cell, client) {
        setClass(cell.firstChild, client.backlogged ? "badge" : "");
        setText(cell.firstChild, stateOf(client));
      },
    },
    { className: "number", make: makeBar, show: (cell, client) => showBar(cell, client.now) },
    { className: "number", text: (client) => percent(client.minute) },
    { className: "number", text: (client) => units(client.service) },
    { className: "number", text: (client) => units(client.waiting) },
    { className: "number", text: (client) => units(client.running) },
    { className: "number", text: (client) => units(client.pages) },
    { className: "number", text: (client) => units(client.part) },
  ];
}

function stateOf(client) {
  if (client.backlogged) {
    return "waits";
  }
  if (client.waiting > 0) {
    return "waits somewhere";
  }
  return client.running > 0 ? "runs" : "idle";
}

function makeBar(cell) {
  element("i", { parent: element("span", { className: "bar", parent: cell }) });
  element("span", { parent: cell });
}

function showBar(cell, part) {
  setPart(cell.firstChild.firstChild, "--part", part.toFixed(3));
  setText(cell.lastChild, percent(part));
}
