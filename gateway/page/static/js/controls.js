// The buttons of `fairlead demo --watch`, where the page belongs to the demo.

import { element, setText } from "./element.js";

const MILLISECONDS = 1000;

export class Controls {
  constructor(section, box, state) {
    this.section = section;
    this.box = box;
    this.state = state;
    this.buttons = new Map();
    this.groups = new Map();
  }

  async start() {
    if (await this.ask()) {
      setInterval(() => this.ask(), MILLISECONDS);
    }
  }

  // Returns whether there are buttons.
  async ask(name = "") {
    try {
      const request = name ? { method: "POST", body: name } : {};
      const response = await fetch("/controls", request);
      if (response.ok) {
        this.show(await response.json());
      }
    } catch {
      // The gateway is away, which the page says already.
    }
    return this.buttons.size > 0;
  }

  show(buttons) {
    this.section.hidden = buttons.length === 0;
    for (const { name, label, group, pressed, disabled } of buttons) {
      const button = this.buttons.get(name) ?? this.add(name, group);
      setText(button, label);
      button.disabled = disabled;
      if (pressed === null) {
        button.removeAttribute("aria-pressed");
      } else {
        button.setAttribute("aria-pressed", String(pressed));
      }
    }
    setText(this.state, buttons.map((button) => button.says).filter(Boolean).join(" "));
  }

  add(name, group) {
    const button = element("button", { parent: this.groups.get(group) ?? this.addGroup(group) });
    button.type = "button";
    button.dataset.name = name;
    button.addEventListener("click", () => this.ask(name));
    this.buttons.set(name, button);
    return button;
  }

  addGroup(label) {
    const group = element("div", { parent: this.box });
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", label);
    element("span", { text: label, parent: group });
    this.groups.set(label, group);
    return group;
  }
}
