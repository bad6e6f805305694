/* Behaviour of all pages: relative times, keyboard shortcuts, command palette, copying, dialogs,
   toasts and live updates. Forms also work without scripts. */
"use strict";
(() => {
  const root = document.documentElement;
  const $ = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const words = JSON.parse($("#script-words")?.textContent || "{}");
  const fill = (template, values) => (template || "").replace(/\{(\w+)\}/g, (_, name) => values[name]);

  /* --- times --------------------------------------------------------------------------------- */
  // Relative to the server's clock, because the local clock may be wrong.
  const skew = root.dataset.now ? Number(root.dataset.now) * 1000 - Date.now() : 0;
  const now = () => Date.now() + skew;

  function spanText(seconds) {
    const parts = [];
    const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
    if (seconds < 60) parts.push(["s", seconds]);
    else if (minutes < 60) {
      parts.push(["min", minutes]);
      if (minutes < 5 && seconds % 60) parts.push(["s", seconds % 60]);
    } else if (hours < 48) {
      parts.push(["h", hours]);
      if (minutes % 60) parts.push(["min", minutes % 60]);
    } else parts.push(["d", Math.floor(hours / 24)]);
    return parts.map(([unit, count]) => fill(words[unit], { count })).join(root.lang.startsWith("zh") ? "" : " ");
  }

  function away(moment) {
    const distance = moment - now();
    const seconds = Math.floor(Math.abs(distance) / 1000);
    if (seconds < 1) return words.now;
    return fill(distance > 0 ? words.in : words.ago, { span: spanText(seconds) });
  }

  function tick() {
    for (const each of all("time[datetime] > [data-away]")) {
      const text = away(Date.parse(each.parentElement.dateTime));
      if (text && each.textContent !== text) each.textContent = text;
    }
  }
  if (words.in) setInterval(tick, 30000);

  // Durations of running runs, and the times beside them, advance every second.
  function advance() {
    const running = all("[data-since]");
    for (const each of running) {
      const text = spanText(Math.max(0, Math.floor(now() / 1000 - Number(each.dataset.since))));
      if (each.textContent !== text) each.textContent = text;
    }
    if (running.length) tick();
  }
  if (words.in) setInterval(advance, 1000);

  // Stores the browser's time zone, which applies unless the user has chosen one.
  function detectZone() {
    if (!root.dataset.zone || "zoneChosen" in root.dataset) return;
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const jar = Object.fromEntries(document.cookie.split("; ").map((each) => each.split(/=(.*)/)));
    const choices = new URLSearchParams(jar.chimes_look || "");
    if (!zone || choices.get("seen_zone") === zone) return;
    choices.set("seen_zone", zone);
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `chimes_look=${choices}; Path=/; Max-Age=31536000; SameSite=Lax${secure}`;
    if (zone !== root.dataset.zone && document.cookie.includes("seen_zone")) location.reload();
  }
  detectZone();

  // A tap shows the tooltip of a time: all zones.
  document.addEventListener("click", (event) => {
    $(".tap-card")?.remove();
    const time = event.target.closest("time[title]");
    if (!time || event.target.closest("a, button, summary")) return;
    const card = document.createElement("div");
    card.className = "tap-card";
    card.setAttribute("role", "status");
    card.textContent = time.title;
    document.body.append(card);
    const box = time.getBoundingClientRect(), room = root.clientWidth - card.offsetWidth - 8;
    card.style.left = `${Math.max(8, Math.min(box.left, room)) + scrollX}px`;
    card.style.top = `${box.bottom + 4 + scrollY}px`;
  });

  // A chart that is wider than its container is scrolled to the current time or to the newest point.
  for (const room of all(".figure .scroll")) {
    const line = $(".now", room), names = $(".names", room)?.clientWidth ?? 0;
    const place = line ? line.getBoundingClientRect().left - room.getBoundingClientRect().left - names : 0;
    if (line) room.scrollLeft = place - (room.clientWidth - names) * .7;
    else if ($(".points", room)) room.scrollLeft = room.scrollWidth;
  }

  /* --- toasts -------------------------------------------------------------------------------- */
  const toasts = $("#toasts");

  function toast(text, kind = "done") {
    const box = document.createElement("div");
    box.className = `toast ${kind}`;
    const span = document.createElement("span");
    span.className = "toast-text";
    span.textContent = text;
    box.append(span);
    toasts?.append(box);
    arm(box);
    return box;
  }

  function arm(box) {
    $("[data-dismiss]", box)?.removeAttribute("hidden");
    if (box.classList.contains("error")) return;
    let timer;
    const start = () => { timer = setTimeout(() => box.remove(), $("form", box) ? 20000 : 8000); };
    const hold = () => clearTimeout(timer);
    for (const name of ["mouseenter", "focusin"]) box.addEventListener(name, hold);
    for (const name of ["mouseleave", "focusout"]) box.addEventListener(name, start);
    start();
  }
  all(".toast").forEach(arm);
  // Toasts about the same subject replace each other, and at most four are shown.
  const subject = (box) => box.dataset.about || ($("strong", box) || $(".toast-text", box))?.textContent;
  if (toasts) {
    new MutationObserver((changes) => {
      for (const node of changes.flatMap((change) => [...change.addedNodes])) {
        if (!node.classList?.contains("toast")) continue;
        for (const other of all(".toast", toasts)) if (other !== node && subject(other) === subject(node)) other.remove();
        if (node.classList.contains("error")) $("[data-dismiss]", node)?.removeAttribute("hidden");
      }
      all(".toast", toasts).slice(0, -4).forEach((each) => each.remove());
    }).observe(toasts, { childList: true });
  }

  /* --- clicks -------------------------------------------------------------------------------- */
  async function copy(button) {
    const from = button.dataset.copyFrom;
    const text = from ? $(from)?.textContent ?? "" : button.dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
      toast(words.copied || "✓");
    } catch {
      toast(words.not_copied || "✕", "warning");
    }
  }

  const prepare = (from) => all("[data-copy], [data-copy-from], [data-palette]", from).forEach((each) => { each.hidden = false; });
  prepare(document);

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy], [data-copy-from]");
    if (button) return void copy(button);
    if (event.target.closest("[data-dismiss]")) return void event.target.closest(".toast").remove();
    if (event.target.closest("[data-palette]")) return void openPalette();
    const close = event.target.closest("dialog [data-close]");
    if (close) {
      event.preventDefault();
      return void close.closest("dialog").close();
    }
    const box = event.target.closest("[data-select-all]");
    if (box) all("input[data-select]").forEach((each) => { each.checked = box.checked; });
    if (event.target.closest("[data-select], [data-select-all]")) countSelected();
    for (const menu of all("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });

  function countSelected() {
    const count = all("input[data-select]:checked").length;
    for (const each of all("[data-selected-count]")) each.textContent = count;
    for (const each of all("[data-when-selected]")) each.hidden = count === 0;
  }

  /* --- htmx ---------------------------------------------------------------------------------- */
  const dialogs = $("#dialogs");
  if (dialogs) {
    // Opens dialogs that htmx inserts; closing them restores the focus.
    new MutationObserver(() => {
      const dialog = $("dialog[data-open]", dialogs);
      if (!dialog || dialog.open) return;
      const before = document.activeElement;
      dialog.addEventListener("close", () => { dialog.remove(); before?.focus?.(); });
      dialog.showModal();
    }).observe(dialogs, { childList: true });
  }
  document.addEventListener("htmx:after:swap", () => { prepare(document); tick(); countSelected(); });
  document.addEventListener("htmx:error", () => toast(words.failed, "error"));

  // Progress of requests that the user started: a line after 300 ms (app.css), a toast after 8 s.
  let waiting = 0;
  document.addEventListener("htmx:before:request", ({ detail: { ctx } }) => {
    if (!["click", "submit"].includes(ctx.sourceEvent?.type)) return;
    const send = ctx.fetch;
    const wait = (step) => { waiting += step; root.classList.toggle("waits", waiting > 0); };
    ctx.fetch = async (...given) => {
      const long = setTimeout(() => toast(words.too_slow, "warning"), 8000);
      wait(1);
      try { return await send(...given); } finally { clearTimeout(long); wait(-1); }
    };
  });

  /* --- keys ---------------------------------------------------------------------------------- */
  const rows = () => all("[data-row]");
  let current = -1, goPressedAt = 0;

  function move(step) {
    const found = rows();
    if (!found.length) return;
    found[current]?.classList.remove("current");
    current = Math.max(0, Math.min(found.length - 1, current + step));
    found[current].classList.add("current");
    const link = $("[data-open-row], a[href]", found[current]);
    link?.focus({ preventScroll: true });
    found[current].scrollIntoView({ block: "nearest" });
  }

  // Actions of the page, not those of a row.
  const ofPage = (selector) => all(`main ${selector}`).filter((each) => !each.closest("[data-row]"));

  function press(key) {
    const row = document.activeElement?.closest?.("[data-row]") || rows()[current];
    const named = `[data-key="${CSS.escape(key)}"]`;
    const target = (row && $(named, row)) || ofPage(named)[0] || $(`header ${named}`);
    if (!target) return false;
    target.click();
    return true;
  }

  const typing = (element) => element?.matches?.("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]");

  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && $("#palette")) {
      event.preventDefault();
      return void openPalette();
    }
    if (event.key === "Escape") $(".tap-card")?.remove();
    if (event.key === "Escape") for (const menu of all("details.menu[open]")) { menu.open = false; $("summary", menu).focus(); }
    if (root.dataset.shortcuts === "off" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing(event.target) || $("dialog[open]")) return;
    if (shortcut(event)) event.preventDefault();
  });

  function shortcut(event) {
    const key = event.key;
    if (Date.now() - goPressedAt < 1500) {
      goPressedAt = 0;
      const link = $(`[data-go="${CSS.escape(key)}"]`);
      if (link) { link.click(); return true; }
    }
    switch (key) {
      case "g": goPressedAt = Date.now(); return true;
      case "/": $("[data-search]")?.focus(); return true;
      case "?": $("#cheat-sheet")?.showModal(); return true;
      case "j": move(1); return true;
      case "k": move(-1); return true;
      case "r": location.reload(); return true;
      case "x": {
        const box = $("input[data-select]", document.activeElement?.closest?.("[data-row]") || rows()[current] || document.createElement("i"));
        box?.click();
        return Boolean(box);
      }
      case " ":
        // Space presses buttons; in rows it opens the preview.
        return Boolean(document.activeElement?.closest?.("[data-row]") && !document.activeElement.matches("button, input, summary")) && press(" ");
      case "n": case "p": case "!": case "e": case "l": return press(key);
      // Shortcuts of single pages, such as the inbox.
      default: return key.length === 1 && press(key);
    }
  }

  /* --- palette ------------------------------------------------------------------------------- */
  let search = 0;

  function addOption(id, title, group, key) {
    const option = document.createElement("li"), text = document.createElement("span");
    option.id = id;
    text.textContent = title;
    option.append(text);
    if (key) {
      const shown = document.createElement("kbd");
      shown.textContent = key === " " ? "␣" : key;
      shown.setAttribute("aria-hidden", "true");
      option.append(shown);
    }
    option.setAttribute("role", "option");
    option.setAttribute("aria-selected", "false");
    $(`#palette-${group}`).append(option);
    return option;
  }

  const go = (option) => (option.press ? option.press() : location.assign(option.dataset.address));

  function openPalette() {
    const dialog = $("#palette");
    if (dialog.open) return;
    dialog.showModal();
    const field = $("#palette-text");
    field.value = "";
    // Adds the actions of the page.
    all("#palette-list [data-press]").forEach((each) => each.remove());
    ofPage("[data-key]").forEach((each, index) => {
      const option = addOption(`press-${index}`, each.getAttribute("aria-label") || each.textContent.trim(), "actions", each.dataset.key);
      option.dataset.press = index;
      option.press = () => { dialog.close(); each.click(); };
    });
    filterOptions("");
    field.focus();
  }

  const options = () => all("#palette-list [role=option]").filter((each) => !each.hidden);

  function choose(option) {
    for (const each of all("#palette-list [role=option]")) each.setAttribute("aria-selected", String(each === option));
    if (option) $("#palette-text").setAttribute("aria-activedescendant", option.id);
    option?.scrollIntoView({ block: "nearest" });
  }

  function filterOptions(text) {
    const list = $("#palette-list"), wanted = text.trim().toLowerCase();
    search += 1;
    all("[data-found]", list).forEach((each) => each.remove());
    for (const each of all("[role=option]", list)) each.hidden = !$("span", each).textContent.toLowerCase().includes(wanted);
    $("#palette-none").textContent = "";
    choose(options()[0]);
  }

  async function find(text) {
    const list = $("#palette-list"), mine = search;
    if (!text.trim()) return;
    const answer = await fetch(`/ui/palette?q=${encodeURIComponent(text.trim())}`, { headers: { Accept: "application/json" } }).catch(() => null);
    if (!answer?.ok || mine !== search) return;
    (await answer.json()).items.forEach((item, index) => {
      const option = addOption(`found-${index}`, item.title, "found");
      option.dataset.found = option.dataset.address = item.address;
    });
    if (!$("[aria-selected=true]:not([hidden])", list)) choose(options()[0]);
    $("#palette-none").textContent = options().length ? "" : words.no_matches;
  }

  const palette = $("#palette");
  if (palette) {
    let waiting;
    palette.addEventListener("input", (event) => {
      const text = event.target.value;
      filterOptions(text);
      clearTimeout(waiting);
      waiting = setTimeout(() => find(text), 120);
    });
    palette.addEventListener("keydown", (event) => {
      const found = options(), at = found.findIndex((each) => each.getAttribute("aria-selected") === "true");
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        choose(found[(at + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length]);
      } else if (event.key === "Enter") {
        event.preventDefault();
        if (found[at]) go(found[at]);
      }
    });
    palette.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) go(option);
      else if (event.target === palette) palette.close();
    });
  }

  /* --- live ---------------------------------------------------------------------------------- */
  const TOPICS = ["runs", "schedules", "inbox", "nodes"];

  class LiveDot extends HTMLElement {
    connectedCallback() {
      // The stream resumes from before the page was rendered.
      this.last = this.dataset.after || "";
      this.lastEvent = now();
      document.addEventListener("visibilitychange", () => this.update());
      setInterval(() => { if (this.dataset.state === "reconnecting") this.show("reconnecting"); }, 5000);
      this.update();
    }
    update() {
      if (document.hidden) { this.stop(); this.show("paused"); } else this.start();
    }
    stop() { this.source?.close(); this.source = null; }
    start() {
      if (this.source) return;
      const after = this.last ? `?after=${encodeURIComponent(this.last)}` : "";
      const source = this.source = new EventSource(this.dataset.address + after);
      const receive = (event) => {
        this.last = event.lastEventId || this.last;
        this.lastEvent = now();
        if (this.dataset.state !== "live") all(".toast[data-about='sign-in']").forEach((each) => each.remove());
        this.show("live");
        if (event.type !== "beat") this.dispatchEvent(new CustomEvent(event.type, { bubbles: true }));
      };
      source.addEventListener("beat", receive);
      for (const topic of TOPICS) source.addEventListener(`${topic}.changed`, receive);
      source.onerror = () => {
        this.show("reconnecting");
        if (source.readyState === EventSource.CLOSED) { this.stop(); this.reconnect(); }
      };
    }
    // EventSource does not reconnect after an HTTP error and does not tell the status.
    async reconnect() {
      const answer = await fetch(this.dataset.address, { method: "HEAD" }).catch(() => null);
      if (answer?.status === 401) return void this.signedOut();
      setTimeout(() => this.update(), 5000 + Math.random() * 3000);
    }
    signedOut() {
      this.show("signed_out");
      const link = document.createElement("a");
      link.href = `/ui/login?next=${encodeURIComponent(location.pathname + location.search)}`;
      link.textContent = words.sign_in;
      // A new tab keeps unsaved input.
      link.onclick = () => { link.target = all("main input, main textarea").some((each) => each.value !== each.defaultValue) ? "_blank" : ""; };
      const box = toast(words.signed_out, "error");
      box.dataset.about = "sign-in";
      box.append(link);
    }
    show(state) {
      const span = spanText(Math.max(0, Math.round((now() - this.lastEvent) / 1000)));
      const text = fill(words[state], { span });
      this.dataset.state = state;
      if (this.title === text) return;
      this.title = text;
      this.setAttribute("aria-label", text);
      $("#live-words").textContent = state === "reconnecting" || state === "signed_out" ? text : "";
    }
  }
  customElements.define("live-dot", LiveDot);

  // New rows are announced with a link, so that lists do not jump.
  class NewRows extends HTMLElement {
    connectedCallback() {
      this.onChange = () => this.count();
      document.addEventListener(`${this.dataset.topic}.changed`, this.onChange);
    }
    disconnectedCallback() { document.removeEventListener(`${this.dataset.topic}.changed`, this.onChange); }
    async count() {
      const answer = await fetch(this.dataset.ask, { headers: { Accept: "application/json" } }).catch(() => null);
      if (!answer?.ok) return;
      const { count, text } = await answer.json();
      this.hidden = !count;
      $("a", this).textContent = text;
    }
  }
  customElements.define("new-rows", NewRows);

  window.chimes = { toast, now, spanText, words, fill };
})();
