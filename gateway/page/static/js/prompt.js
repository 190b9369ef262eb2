// A prompt of one's own, sent as a chosen user. Only this page shows it, and the gateway does not keep it.

import { element, setText } from "./element.js";
import { seconds } from "./format.js";
import { waterfall } from "./waterfall.js";

export class Prompt {
  constructor(form, answer, facts, timeline) {
    this.form = form;
    this.answer = answer;
    this.facts = facts;
    this.timeline = timeline;
    this.model = form.querySelector("#prompt-model");
    this.stop = form.querySelector("#prompt-stop");
    this.aborting = null;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.stop.addEventListener("click", () => this.aborting?.abort());
  }

  // Offers the models that workers serve.
  show(workers) {
    const models = [...new Set(Object.values(workers).flatMap((worker) => worker.models.split(", ")))].sort();
    if (models.join() !== [...this.model.options].map((option) => option.value).join()) {
      this.model.replaceChildren(...models.map((model) => element("option", { text: model })));
    }
  }

  async send() {
    const value = (id) => this.form.querySelector(`#prompt-${id}`).value;
    const headers = { "content-type": "application/json" };
    if (value("user")) {
      headers["x-fairlead-user"] = value("user");
    }
    if (value("key")) {
      headers.authorization = `Bearer ${value("key")}`;
    }
    const body = JSON.stringify({
      model: value("model"),
      messages: [{ role: "user", content: value("text") }],
      max_tokens: Number(value("tokens")),
      stream: true,
    });
    this.answer.textContent = "";
    this.timeline.replaceChildren();
    setText(this.facts, "Waiting for the first token.");
    this.aborting?.abort();
    const aborting = (this.aborting = new AbortController());
    this.stop.hidden = false;
    const began = performance.now();
    try {
      const response = await fetch("/v1/chat/completions", { method: "POST", headers, body, signal: aborting.signal });
      await this.read(response, began);
    } catch (error) {
      setText(this.facts, aborting.signal.aborted ? "Stopped." : `The call failed: ${error.message}.`);
    }
    this.stop.hidden = true;
  }

  async read(response, began) {
    if (!response.ok) {
      const { error } = await response.json();
      setText(this.facts, `Refused with status ${response.status}: ${error.message ?? error}`);
      return;
    }
    let failure = "";
    for await (const event of events(response.body)) {
      failure = event.error?.message ?? failure;
      this.answer.append(event.choices?.[0]?.delta?.content ?? "");
    }
    const id = response.headers.get("x-request-id") ?? "";
    const took = seconds((performance.now() - began) / 1000);
    setText(this.facts, failure ? `The call failed: ${failure}` : `Answered in ${took} as call ${id}.`);
    const known = await fetch(`/calls?id=${encodeURIComponent(id)}`);
    const calls = known.ok ? await known.json() : [];
    if (calls.length > 0) {
      this.timeline.replaceChildren(waterfall(calls, `Where the time of call ${id} went`));
    }
  }
}

async function* events(stream) {
  let rest = "";
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const blocks = (rest + part.value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.startsWith("data: ") ? block.slice(6) : "";
      if (data && data !== "[DONE]") {
        yield JSON.parse(data);
      }
    }
  }
}
