// Which client has which colour. The most active clients have one each, for as long as they stay among them.

const COLOURS = 7;
const KEPT = 2 * COLOURS;

export class Palette {
  constructor() {
    this.slots = new Map();
  }

  // `names` are the clients, the most active first.
  assign(names) {
    const kept = new Set(names.slice(0, KEPT));
    for (const name of this.slots.keys()) {
      if (!kept.has(name)) {
        this.slots.delete(name);
      }
    }
    const used = new Set(this.slots.values());
    const free = [...Array(COLOURS).keys()].filter((slot) => !used.has(slot));
    for (const name of names.slice(0, COLOURS)) {
      if (!this.slots.has(name) && free.length > 0) {
        this.slots.set(name, free.shift());
      }
    }
  }

  className(name) {
    return `client-${this.slots.get(name) ?? "other"}`;
  }

  colour(name) {
    return cssColour(`--${this.className(name)}`);
  }
}

export function cssColour(variable) {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}
