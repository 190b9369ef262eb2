// Clients over the last minutes, as columns for the charts: `lines` are the shares of those that have requests, `ahead` how
// far those that wait everywhere are ahead; null where a client did not.

const SECONDS = 240;

export class Series {
  constructor() {
    this.replace({ times: [], bound: [], lines: {}, ahead: {} });
  }

  replace(past) {
    this.times = past.times;
    this.bound = past.bound;
    this.lines = new Map(Object.entries(past.lines));
    this.ahead = new Map(Object.entries(past.ahead));
  }

  append(state) {
    const { bound } = state.fairness;
    const clients = Object.entries(state.clients);
    const busy = clients.filter(([, client]) => client.waiting > 0 || client.running > 0);
    const backlogged = clients.filter(([, client]) => client.backlogged);
    this.times.push(state.time);
    this.bound.push(bound ?? null);
    extend(this.lines, this.times.length, new Map(busy.map(([name, client]) => [name, client.now])));
    extend(this.ahead, this.times.length, new Map(backlogged.map(([name, client]) => [name, client.ahead ?? null])));
    this.forget(state.time - SECONDS);
  }

  forget(before) {
    const old = this.times.findIndex((time) => time >= before);
    if (old <= 0) {
      return;
    }
    for (const column of [this.times, this.bound, ...this.lines.values(), ...this.ahead.values()]) {
      column.splice(0, old);
    }
    for (const lines of [this.lines, this.ahead]) {
      for (const [name, line] of lines) {
        if (line.every((value) => value === null)) {
          lines.delete(name);
        }
      }
    }
  }
}

function extend(lines, length, values) {
  for (const name of values.keys()) {
    if (!lines.has(name)) {
      lines.set(name, Array(length - 1).fill(null));
    }
  }
  for (const [name, line] of lines) {
    line.push(values.get(name) ?? null);
  }
}
