// The stream of events: the whole state first, then patches. It connects again until it is closed.

import { apply } from "./merge_patch.js";

const RETRY_MILLISECONDS = 1000;

export class Connection {
  // `changed(state, past)` is called with every state; `past` is given with the first one of each connection only.
  // `lost()` is called when the connection breaks, and `refused()` when the login has expired.
  constructor({ changed, lost, refused }) {
    this.changed = changed;
    this.lost = lost;
    this.refused = refused;
    this.state = null;
    this.source = null;
    this.timer = 0;
  }

  open() {
    this.close();
    const source = (this.source = new EventSource("/events"));
    source.addEventListener("state", (event) => {
      const { past, ...state } = JSON.parse(event.data);
      this.state = apply({}, state);
      this.changed(this.state, past);
    });
    source.addEventListener("patch", (event) => {
      this.state = apply(this.state, JSON.parse(event.data));
      this.changed(this.state, null);
    });
    source.addEventListener("error", () => {
      this.close();
      this.lost();
      this.timer = setTimeout(() => this.retry(), RETRY_MILLISECONDS);
    });
  }

  async retry() {
    try {
      const { open } = await (await fetch("/access")).json();
      if (open) {
        this.open();
      } else {
        this.refused();
      }
    } catch {
      this.timer = setTimeout(() => this.retry(), RETRY_MILLISECONDS);
    }
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }
}
