// The login: a key from the form, or from the address after `#key=`, which browsers never send to a server.

export class Login {
  constructor(form, begun) {
    this.form = form;
    this.begun = begun;
    this.field = form.querySelector("#key");
    this.error = form.querySelector("#login-error");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.logIn(this.field.value);
    });
  }

  async start() {
    const key = new URLSearchParams(location.hash.slice(1)).get("key");
    if (key !== null) {
      history.replaceState(null, "", location.pathname);
      await this.logIn(key);
      return;
    }
    const { open } = await (await fetch("/access")).json();
    if (open) {
      this.begun();
    } else {
      this.ask();
    }
  }

  ask() {
    this.form.hidden = false;
    this.field.focus();
  }

  async logIn(key) {
    const response = await fetch("/login", { method: "POST", body: key });
    if (response.ok) {
      this.field.value = "";
      this.error.textContent = "";
      this.form.hidden = true;
      this.begun();
    } else {
      this.ask();
      this.error.textContent = `Not opened: ${(await response.json()).error}.`;
    }
  }

  async logOut() {
    await fetch("/logout", { method: "POST" });
    location.reload();
  }
}
