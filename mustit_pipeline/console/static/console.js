// Pages work without this. It keeps what moves up to date, and asks before actions without leaving the page.
"use strict";

(() => {
  const QUIET_MILLISECONDS = 1500;
  const RETRY_MILLISECONDS = 5000;

  // Parts of a page that change have `data-live` and an id; the page is fetched again, and each is put in its place.
  let busy = false;
  let again = false;

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
      for (const old of document.querySelectorAll("[data-live]")) {
        const next = fresh.getElementById(old.id);
        // A field in use stays as it is.
        if (next && !old.contains(document.activeElement) && !old.querySelector("input:checked")) {
          if (old.innerHTML !== next.innerHTML) old.replaceWith(document.adoptNode(next));
        }
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
    const answer = await fetch(action, { method: "POST", body: new URLSearchParams(fields), credentials: "same-origin" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const question = page.querySelector("[data-confirmation]");
    if (!question) {
      location.assign(answer.redirected ? answer.url : location.href);
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
