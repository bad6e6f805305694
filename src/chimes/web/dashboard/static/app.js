/* What a page does by itself: times that go on, keys, palette, copying, questions, toasts, and the
   one stream that says when something has changed. Every form works without any of it. */
"use strict";
(() => {
  const root = document.documentElement;
  const $ = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const words = JSON.parse($("#script-words")?.textContent || "{}");
  const fill = (template, values) => (template || "").replace(/\{(\w+)\}/g, (_, name) => values[name]);

  /* --- times --------------------------------------------------------------------------------- */
  // The server's clock: this machine's may be wrong.
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

  // The reader's own zone, once: where nothing was chosen, times are shown by it.
  function noticeZone() {
    if (!root.dataset.zone || "zoneChosen" in root.dataset) return;
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const jar = Object.fromEntries(document.cookie.split("; ").map((each) => each.split(/=(.*)/)));
    const look = new URLSearchParams(jar.chimes_look || "");
    if (!zone || look.get("seen_zone") === zone) return;
    look.set("seen_zone", zone);
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `chimes_look=${look}; Path=/; Max-Age=31536000; SameSite=Lax${secure}`;
    if (zone !== root.dataset.zone && document.cookie.includes("seen_zone")) location.reload();
  }
  noticeZone();

  // A tap shows what the mouse finds by waiting: the moment in all zones.
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

  // A picture that is wider than its place begins with what is now: its line, or its newest end.
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
  // The same word twice, or about the same, is one (the later), and no more than four: what goes wrong again and again does not
  // fill the page.
  const saying = (box) => box.dataset.about || ($("strong", box) || $(".toast-text", box))?.textContent;
  if (toasts) {
    new MutationObserver((changes) => {
      for (const node of changes.flatMap((change) => [...change.addedNodes])) {
        if (!node.classList?.contains("toast")) continue;
        for (const other of all(".toast", toasts)) if (other !== node && saying(other) === saying(node)) other.remove();
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
    // An answer that asks back comes as a dialog; focus returns to where it was.
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

  // Somebody pressed something and waits for the answer: a line after 300 ms (app.css), words when
  // it takes long. What a page looks up by itself nobody waits for.
  let waiting = 0;
  document.addEventListener("htmx:before:request", ({ detail: { ctx } }) => {
    if (!["click", "submit"].includes(ctx.sourceEvent?.type)) return;
    const ask = ctx.fetch;
    const wait = (step) => { waiting += step; root.classList.toggle("waits", waiting > 0); };
    ctx.fetch = async (...given) => {
      const long = setTimeout(() => toast(words.too_slow, "warning"), 8000);
      wait(1);
      try { return await ask(...given); } finally { clearTimeout(long); wait(-1); }
    };
  });

  /* --- keys ---------------------------------------------------------------------------------- */
  const rows = () => all("[data-row]");
  let current = -1, waitsForPage = 0;

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

  // Of the page as a whole: what is in a row belongs to that row, and nobody has chosen it yet.
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
    if (Date.now() - waitsForPage < 1500) {
      waitsForPage = 0;
      const link = $(`[data-go="${CSS.escape(key)}"]`);
      if (link) { link.click(); return true; }
    }
    switch (key) {
      case "g": waitsForPage = Date.now(); return true;
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
        // Space presses buttons; only rows give it another meaning.
        return Boolean(document.activeElement?.closest?.("[data-row]") && !document.activeElement.matches("button, input, summary")) && press(" ");
      case "n": case "p": case "!": case "e": case "l": return press(key);
      // Keys of a page of its own, e.g. those of mail.
      default: return key.length === 1 && press(key);
    }
  }

  /* --- palette ------------------------------------------------------------------------------- */
  let asked = 0;

  function addOption(id, title) {
    const option = document.createElement("li");
    Object.assign(option, { id, textContent: title });
    option.setAttribute("role", "option");
    option.setAttribute("aria-selected", "false");
    $("#palette-list").append(option);
    return option;
  }

  const go = (option) => (option.press ? option.press() : location.assign(option.dataset.address));

  function openPalette() {
    const dialog = $("#palette");
    if (dialog.open) return;
    dialog.showModal();
    const field = $("#palette-text");
    field.value = "";
    // What this page can do as a whole: its own buttons.
    all("#palette-list [data-press]").forEach((each) => each.remove());
    ofPage("[data-key]").forEach((each, index) => {
      const option = addOption(`press-${index}`, each.getAttribute("aria-label") || each.textContent.trim());
      option.dataset.press = index;
      option.press = () => { dialog.close(); each.click(); };
    });
    narrow("");
    field.focus();
  }

  const options = () => all("#palette-list [role=option]").filter((each) => !each.hidden);

  function choose(option) {
    for (const each of all("#palette-list [role=option]")) each.setAttribute("aria-selected", String(each === option));
    if (option) $("#palette-text").setAttribute("aria-activedescendant", option.id);
    option?.scrollIntoView({ block: "nearest" });
  }

  function narrow(text) {
    const list = $("#palette-list"), wanted = text.trim().toLowerCase();
    asked += 1;
    all("[data-found]", list).forEach((each) => each.remove());
    for (const each of all("[role=option]", list)) each.hidden = !each.textContent.toLowerCase().includes(wanted);
    $("#palette-none").textContent = "";
    choose(options()[0]);
  }

  async function find(text) {
    const list = $("#palette-list"), mine = asked;
    if (!text.trim()) return;
    const answer = await fetch(`/ui/palette?q=${encodeURIComponent(text.trim())}`, { headers: { Accept: "application/json" } }).catch(() => null);
    if (!answer?.ok || mine !== asked) return;
    (await answer.json()).items.forEach((item, index) => {
      const option = addOption(`found-${index}`, item.title);
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
      narrow(text);
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
      // From before the page was made: what happened since then is told at once.
      this.last = this.dataset.after || "";
      this.heard = now();
      document.addEventListener("visibilitychange", () => this.look());
      setInterval(() => { if (this.dataset.state === "reconnecting") this.show("reconnecting"); }, 5000);
      this.look();
    }
    look() {
      if (document.hidden) { this.stop(); this.show("paused"); } else this.start();
    }
    stop() { this.source?.close(); this.source = null; }
    start() {
      if (this.source) return;
      const after = this.last ? `?after=${encodeURIComponent(this.last)}` : "";
      const source = this.source = new EventSource(this.dataset.address + after);
      const hear = (event) => {
        this.last = event.lastEventId || this.last;
        this.heard = now();
        if (this.dataset.state !== "live") all(".toast[data-about='sign-in']").forEach((each) => each.remove());
        this.show("live");
        if (event.type !== "beat") this.dispatchEvent(new CustomEvent(event.type, { bubbles: true }));
      };
      source.addEventListener("beat", hear);
      for (const topic of TOPICS) source.addEventListener(`${topic}.changed`, hear);
      source.onerror = () => {
        this.show("reconnecting");
        if (source.readyState === EventSource.CLOSED) { this.stop(); this.refused(); }
      };
    }
    // A refusal ends it for good, and does not say why: ask; try again by ourselves, after a while.
    async refused() {
      const answer = await fetch(this.dataset.address, { method: "HEAD" }).catch(() => null);
      if (answer?.status === 401) return void this.signedOut();
      setTimeout(() => this.look(), 5000 + Math.random() * 3000);
    }
    signedOut() {
      this.show("signed_out");
      const link = document.createElement("a");
      link.href = `/ui/login?next=${encodeURIComponent(location.pathname + location.search)}`;
      link.textContent = words.sign_in;
      // What is typed here stays here.
      link.onclick = () => { link.target = all("main input, main textarea").some((each) => each.value !== each.defaultValue) ? "_blank" : ""; };
      const box = toast(words.signed_out, "error");
      box.dataset.about = "sign-in";
      box.append(link);
    }
    show(state) {
      const span = spanText(Math.max(0, Math.round((now() - this.heard) / 1000)));
      const text = fill(words[state], { span });
      this.dataset.state = state;
      if (this.title === text) return;
      this.title = text;
      this.setAttribute("aria-label", text);
      $("#live-words").textContent = state === "reconnecting" || state === "signed_out" ? text : "";
    }
  }
  customElements.define("live-dot", LiveDot);

  // New rows wait behind a line, so that lists never jump.
  class NewRows extends HTMLElement {
    connectedCallback() {
      this.hear = () => this.ask();
      document.addEventListener(`${this.dataset.topic}.changed`, this.hear);
    }
    disconnectedCallback() { document.removeEventListener(`${this.dataset.topic}.changed`, this.hear); }
    async ask() {
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
