// Follows one order: the server sends its status changes, and after each the status is taken anew from the page, so that
// there is one place that says how a status looks.
"use strict";
(() => {
  const rank = { pending: 0, awaiting_payment: 1, confirmed: 2, rejected: 2, cancelled: 2 };
  const section = () => document.getElementById("status");
  const shown = () => rank[section().dataset.status] ?? 0;
  const final = 2;
  const retry = 3000;
  let wanted = shown();
  let loading = false;
  let source;
  let timer;

  function later() {
    clearTimeout(timer);
    timer = setTimeout(refresh, retry);
  }

  async function refresh() {
    if (loading) return;
    loading = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.getElementById("status");
        if (fresh && fresh.dataset.status !== section().dataset.status) {
          section().dataset.status = fresh.dataset.status;
          section().replaceChildren(...fresh.childNodes);
        }
      }
    } catch {
      // No connection: the next try is already planned below.
    } finally {
      loading = false;
    }
    if (shown() === final) {
      source.close();
    } else if (shown() < wanted || source.readyState === EventSource.CLOSED) {
      later();
    }
  }

  source = new EventSource(section().dataset.events);
  source.onmessage = (event) => {
    wanted = Math.max(wanted, rank[JSON.parse(event.data).status] ?? 0);
    if (wanted > shown()) refresh();
  };
  source.onerror = () => {
    // A stream that was refused does not come back by itself; asking now and then does as well.
    if (source.readyState === EventSource.CLOSED && shown() < final) later();
  };
})();
