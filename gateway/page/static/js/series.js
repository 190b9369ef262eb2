// Each client's service over the last minutes, as columns for the charts; null where a client had no requests.

const SECONDS = 240;

export class Series {
  constructor() {
    this.replace({ times: [], least: [], bound: [], lines: {} });
  }

  replace(past) {
    this.times = past.times;
    this.least = past.least;
    this.bound = past.bound;
    this.lines = new Map(Object.entries(past.lines));
  }

  append(state) {
    const isWatched = (client) => client.waiting > 0 || client.running > 0;
    const length = this.times.push(state.time);
    this.least.push(state.fairness.least ?? null);
    this.bound.push(state.fairness.bound ?? null);
    for (const [name, client] of Object.entries(state.clients)) {
      if (isWatched(client) && !this.lines.has(name)) {
        this.lines.set(name, Array(length - 1).fill(null));
      }
    }
    for (const [name, line] of this.lines) {
      const client = state.clients[name];
      line.push(client && isWatched(client) ? client.position : null);
    }
    this.forget(state.time - SECONDS);
  }

  forget(before) {
    const old = this.times.findIndex((time) => time >= before);
    if (old <= 0) {
      return;
    }
    for (const column of [this.times, this.least, this.bound, ...this.lines.values()]) {
      column.splice(0, old);
    }
    for (const [name, line] of this.lines) {
      if (line.every((value) => value === null)) {
        this.lines.delete(name);
      }
    }
  }
}
