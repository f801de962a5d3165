// Pages work without this. It keeps what moves up to date, and asks before actions without leaving the page.
"use strict";

(() => {
  const QUIET_MILLISECONDS = 1500;
  const RETRY_MILLISECONDS = 5000;

  // Parts of a page that change have `data-live` and an id; the page is fetched again, and each is put in its place.
  let busy = false;
  let again = false;
  let waiting = false;

  // What a person types or has ticked stays as it is until they are done.
  const inUse = (part) =>
    part.querySelector("input:checked") || (part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea"));

  // Links and buttons are the same in another version of a part if they do the same.
  const sameness = (element) =>
    [element.tagName, element.id, element.getAttribute("href"), element.form && element.form.getAttribute("action"),
      element.name, element.value, element.getAttribute("aria-label") || element.textContent.trim()].join("\n");

  const controls = (part) => [...part.querySelectorAll("a[href], button, summary, [tabindex]")];

  function put(old, next) {
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const held = focused && sameness(focused);
    const place = focused && controls(old).filter((one) => sameness(one) === held).indexOf(focused);
    const folds = [...old.querySelectorAll("details")].map((one) => one.open);
    const moved = [...old.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    old.replaceWith(document.adoptNode(next));
    next.querySelectorAll("details").forEach((one, number) => { if (number < folds.length) one.open = folds[number]; });
    next.querySelectorAll(".scroll").forEach((one, number) => { one.scrollLeft = moved[number] || 0; });
    if (!focused) return;
    // A control that is gone leaves the focus with its part, so that Tab goes on from there.
    const same = controls(next).filter((one) => sameness(one) === held);
    const target = same[place] || same[0] || next;
    if (target === next) next.tabIndex = -1;
    target.focus({ preventScroll: true });
  }

  async function refresh() {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { "X-Live": "1" }, credentials: "same-origin" });
      if (answer.redirected) {
        location.reload();
        return;
      }
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      waiting = false;
      for (const old of document.querySelectorAll("[data-live]")) {
        const next = fresh.getElementById(old.id);
        if (!next || old.innerHTML === next.innerHTML) continue;
        if (inUse(old)) waiting = true;
        else put(old, next);
      }
    } catch {
      // The next event tries again.
    } finally {
      setTimeout(() => {
        busy = false;
        if (again) {
          again = false;
          refresh();
        }
      }, QUIET_MILLISECONDS);
    }
  }

  document.addEventListener("focusout", () => { if (waiting) setTimeout(() => { if (waiting) refresh(); }); });

  const source = document.querySelector("[data-events]");
  if (source && "EventSource" in window) {
    let events;
    const listen = () => {
      events = new EventSource(source.dataset.events);
      events.addEventListener("changed", refresh);
      events.onerror = () => {
        if (events.readyState === EventSource.CLOSED) setTimeout(listen, RETRY_MILLISECONDS);
      };
    };
    listen();
    // A hidden page needs no events; it looks again when it is back.
    document.addEventListener("visibilitychange", () => {
      events.close();
      if (!document.hidden) {
        listen();
        refresh();
      }
    });
  }

  // "All on this page" ticks the boxes of its table.
  document.addEventListener("change", (event) => {
    const all = event.target;
    if (!(all instanceof HTMLInputElement) || !all.dataset.ticks) return;
    for (const box of all.form.elements) if (box.name === all.dataset.ticks) box.checked = all.checked;
  });

  // A form whose answer is a question shows it in a dialog.
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    const button = event.submitter;
    if (!form.matches("[data-asks]") && !(button && button.matches("[data-asks]"))) return;
    event.preventDefault();
    const fields = new FormData(form, button);
    const action = (button && button.getAttribute("formaction")) || form.getAttribute("action");
    const answer = await fetch(action, {
      method: "POST", body: new URLSearchParams(fields), credentials: "same-origin", redirect: "manual",
    });
    // Done without a question: the page it leads to has the notice, which is shown once.
    if (answer.type === "opaqueredirect") {
      location.assign(fields.get("back") || location.href);
      return;
    }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const question = page.querySelector("[data-confirmation]");
    if (!question) {
      location.reload();
      return;
    }
    const dialog = document.createElement("dialog");
    const title = question.querySelector("h1");
    title.id = "question";
    dialog.setAttribute("aria-labelledby", title.id);
    dialog.append(document.adoptNode(question));
    dialog.addEventListener("click", (click) => {
      if (click.target.closest("[data-dismiss]")) {
        click.preventDefault();
        dialog.close();
      }
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (button) button.focus();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
})();
