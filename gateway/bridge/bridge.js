// Writes each frame that the server sends over the last one, and works the switches. What things are called and how bad they
// are is the server's to say.
"use strict";
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const texts = all("[data-text]");
  const states = all("[data-state-of]");
  const shown = all("[data-show]");
  const drawn = all("[data-attr]").map((el) => [el, el.dataset.attr.split(" ").map((pair) => pair.split("="))]);
  const entries = document.getElementById("entries");
  const quiet = document.getElementById("quiet-log");
  const news = document.getElementById("news");
  const link = document.getElementById("link");
  const pause = document.getElementById("pause");
  const clearAll = document.getElementById("clear-all");
  const api = "/api/v1/faults/";
  let paused = false;
  let latest;
  let told; // number of the last event that was shown

  function show({ text, events }) {
    for (const el of texts) {
      const words = text[el.dataset.text] ?? "";
      if (el.textContent !== words) el.textContent = words;
    }
    for (const el of states) el.dataset.state = text[el.dataset.stateOf] ?? "";
    for (const el of shown) el.hidden = !text[el.dataset.show];
    for (const [el, pairs] of drawn) {
      for (const [name, key] of pairs) el.setAttribute(name, text[key] ?? "");
    }
    log(events ?? []);
  }

  function log(events) {
    const newest = events.length ? events[0].n : 0;
    if (newest === told) return;
    if (told !== undefined) tell(events.filter((e) => e.n > told && e.kind !== "info").reverse());
    told = newest;
    quiet.hidden = events.length > 0;
    entries.replaceChildren(
      ...events.map((e) => {
        const item = document.createElement("li");
        const time = document.createElement("time");
        const words = document.createElement("span");
        item.dataset.kind = e.kind;
        time.dateTime = e.at;
        time.textContent = e.clock;
        words.textContent = e.text;
        item.append(time, " ", words);
        return item;
      }),
    );
  }

  // A screen reader hears what happened, together, and at most once in five seconds.
  let waiting = [];
  let speaking;
  function say() {
    news.textContent = waiting.slice(-3).join(". ");
    waiting = [];
    speaking = setTimeout(() => {
      speaking = undefined;
      if (waiting.length) say();
    }, 5000);
  }
  function tell(events) {
    waiting.push(...events.map((e) => e.text));
    if (waiting.length && !speaking) say();
  }

  function linked(state) {
    link.dataset.link = state;
    link.textContent = { live: "live", lost: "connection lost", still: "paused" }[state];
  }

  let source;
  let again;
  function listen() {
    source = new EventSource("/bridge/events");
    source.onmessage = (event) => {
      latest = JSON.parse(event.data);
      if (paused) return;
      linked("live");
      show(latest);
    };
    source.onerror = () => {
      if (!paused) linked("lost");
      // A stream that was refused does not come back by itself.
      if (source.readyState === EventSource.CLOSED) {
        clearTimeout(again);
        again = setTimeout(listen, 3000);
      }
    };
  }

  pause.onclick = () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    if (paused) linked("still");
    else if (latest) {
      linked("live");
      show(latest);
    }
  };

  async function send(method, service, body) {
    const answer = await fetch(api + service, {
      method,
      headers: body && { "Content-Type": "application/json" },
      body: body && JSON.stringify(body),
    });
    if (answer.ok) return;
    const problem = await answer.json().catch(() => ({}));
    throw new Error(problem.detail ?? `The answer was ${answer.status}.`);
  }

  // While a request is under way its buttons wait; what went wrong stands beside them.
  async function work(buttons, wrong, request) {
    for (const b of buttons) b.disabled = true;
    wrong.textContent = "";
    try {
      await request();
    } catch (error) {
      wrong.textContent = error instanceof TypeError ? "The gateway does not answer." : error.message;
    } finally {
      for (const b of buttons) b.disabled = false;
    }
  }

  function faultOf(form) {
    const { kind, rate, ttl, delay, product } = form.elements;
    const body = { kind: kind.value, rate: rate.valueAsNumber / 100, ttl_s: Math.max(1, Math.round(ttl.valueAsNumber * 60)) };
    if (!delay.disabled) body.delay_ms = delay.valueAsNumber;
    if (!product.disabled) body.match = { product_id: product.value.trim() };
    return body;
  }

  for (const form of all("form[data-fault]")) {
    const service = form.dataset.fault;
    const buttons = [...form.querySelectorAll("button")];
    const wrong = form.querySelector(".wrong");
    const fit = () => {
      for (const part of form.querySelectorAll("[data-for]")) {
        const fits = part.dataset.for.split(" ").includes(form.elements.kind.value);
        const input = part.querySelector("input");
        part.hidden = input.disabled = !fits;
        input.required = fits;
      }
    };
    fit();
    form.elements.kind.onchange = fit;
    form.onsubmit = (event) => {
      event.preventDefault();
      work(buttons, wrong, () => send("PUT", service, faultOf(form)));
    };
    form.querySelector("[data-clear]").onclick = () => work(buttons, wrong, () => send("DELETE", service));
  }
  if (clearAll) {
    const services = all("form[data-fault]").map((form) => form.dataset.fault);
    const wrong = document.getElementById("clear-wrong");
    clearAll.onclick = () => work([clearAll], wrong, () => Promise.all(services.map((service) => send("DELETE", service))));
  }
  listen();
})();
