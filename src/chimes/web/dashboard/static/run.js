/* Log viewer of a run, and the time range selection over the histogram of runs. */
"use strict";
(() => {
  const { fill, now, spanText } = window.chimes;
  const head = document.querySelector("#run-head[data-run]");

  /* --- ANSI ---------------------------------------------------------------------------------- */
  const ESCAPES = /\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])/g;
  const INVISIBLE = /[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
  // The eight base colours; others are mapped to the nearest one.
  const COLOURS = [[0, 0, 0], [205, 0, 0], [0, 205, 0], [205, 205, 0], [0, 0, 238], [205, 0, 205], [0, 205, 205], [229, 229, 229]];
  const CUBE = [0, 95, 135, 175, 215, 255];

  function nearest(red, green, blue) {
    let best = 0, least = Infinity;
    COLOURS.forEach(([r, g, b], index) => {
      const distance = (r - red) ** 2 + (g - green) ** 2 + (b - blue) ** 2;
      if (distance < least) { least = distance; best = index; }
    });
    return best;
  }

  function indexed(number) {
    if (!(number >= 0 && number <= 255)) return 7;
    if (number < 16) return number % 8;
    if (number >= 232) { const grey = 8 + (number - 232) * 10; return nearest(grey, grey, grey); }
    const place = number - 16;
    return nearest(CUBE[Math.floor(place / 36)], CUBE[Math.floor(place / 6) % 6], CUBE[place % 6]);
  }

  const PLAIN = { front: -1, back: -1, bold: false, dim: false, italic: false, underline: false };

  function applied(style, codes) {
    const numbers = codes === "" ? [0] : codes.split(/[;:]/).map(Number);
    let next = { ...style };
    for (let at = 0; at < numbers.length; at += 1) {
      const code = numbers[at];
      if (code === 0) next = { ...PLAIN };
      else if (code === 1) next.bold = true;
      else if (code === 2) next.dim = true;
      else if (code === 3) next.italic = true;
      else if (code === 4) next.underline = true;
      else if (code === 22) next.bold = next.dim = false;
      else if (code === 23) next.italic = false;
      else if (code === 24) next.underline = false;
      else if (code >= 30 && code <= 37) next.front = code - 30;
      else if (code >= 90 && code <= 97) next.front = code - 90;
      else if (code >= 40 && code <= 47) next.back = code - 40;
      else if (code >= 100 && code <= 107) next.back = code - 100;
      else if (code === 39) next.front = -1;
      else if (code === 49) next.back = -1;
      else if (code === 38 || code === 48) {
        const key = code === 38 ? "front" : "back";
        if (numbers[at + 1] === 5) { next[key] = indexed(numbers[at + 2]); at += 2; }
        else if (numbers[at + 1] === 2) { next[key] = nearest(...[2, 3, 4].map((place) => numbers[at + place] || 0)); at += 4; }
      }
    }
    return next;
  }

  function classOf(style) {
    const names = ["bold", "dim", "italic", "underline"].filter((name) => style[name]).map((name) => `a-${name}`);
    if (style.front >= 0) names.push(`a-f${style.front}`);
    if (style.back >= 0) names.push(`a-b${style.back}`);
    return names.join(" ");
  }

  /* Returns pieces of [text, class]; drops other escape codes and makes control characters visible. */
  function parsed(message) {
    const pieces = [];
    let style = PLAIN, at = 0;
    const add = (text) => { if (text) pieces.push([text.replace(INVISIBLE, (sign) => `⟨U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`), classOf(style)]); };
    if (!message.includes("\x1b")) { add(message); return pieces; }
    for (const found of message.matchAll(ESCAPES)) {
      add(message.slice(at, found.index));
      at = found.index + found[0].length;
      if (found[2] === "m") style = applied(style, found[1]);
    }
    add(message.slice(at));
    return pieces;
  }

  /* --- log ----------------------------------------------------------------------------------- */
  const CHUNK = 100, LINE = 24, LONGEST = 20000, NEAR_END = 40;
  const LEVELS = { debug: 10, info: 20, warning: 30, error: 40, critical: 50 };

  class RunLog extends HTMLElement {
    connectedCallback() {
      const find = (selector) => this.querySelector(selector);
      this.words = JSON.parse(find(".log-words").textContent);
      this.view = find(".log-view");
      this.fresh = find(".log-new");
      this.state = find(".log-state");
      this.matchesText = find(".log-matches");
      this.search = find("#log-search");
      this.followBox = find("#log-follow");
      this.lines = [];
      this.shown = [];
      this.chunks = [];
      this.matches = [];
      this.match = -1;
      this.term = "";
      this.least = 0;
      this.stamps = "absolute";
      this.unread = 0;
      this.last = 0;
      this.top = 0;
      this.follow(!location.hash);
      this.clock = new Intl.DateTimeFormat("en-GB", { timeZone: this.dataset.zone, hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23" });
      this.full = new Intl.DateTimeFormat(document.documentElement.lang, { timeZone: this.dataset.zone, dateStyle: "medium", timeStyle: "long" });
      // Virtual list: a chunk is rendered when it comes near the viewport.
      // The log takes the rest of the window below it.
      const fit = () => {
        const below = parseFloat(getComputedStyle(document.body).paddingBottom) + 20;
        this.view.style.setProperty("--room", `${Math.floor(innerHeight - below - this.view.getBoundingClientRect().top - scrollY)}px`);
        if (this.following) this.toEnd();
      };
      this.fitter = new ResizeObserver(fit);
      this.watcher = new IntersectionObserver((entries) => {
        for (const entry of entries) {
          const chunk = entry.target.chunk;
          if (entry.isIntersecting) this.fill(chunk); else this.empty(chunk);
        }
        if (this.following) this.toEnd();
      }, { root: this.view, rootMargin: "600px 0px" });
      this.listen(find);
      find(".log-tools").hidden = find(".log-frame").hidden = false;
      find(".log-plain").remove();
      for (const each of [document.documentElement, head]) if (each) this.fitter.observe(each);
      fit();
      this.load();
    }

    disconnectedCallback() {
      this.watcher?.disconnect();
      this.fitter?.disconnect();
      this.source?.close();
      this.source = null;
      removeEventListener("hashchange", this.onHash);
      document.removeEventListener("visibilitychange", this.onSight);
    }

    listen(find) {
      this.view.addEventListener("scroll", () => this.scrolled());
      this.fresh.addEventListener("click", () => { this.follow(true); this.toEnd(); this.view.focus(); });
      this.followBox.addEventListener("change", () => { this.follow(this.followBox.checked); if (this.following) this.toEnd(); });
      find("#log-level").addEventListener("change", (event) => { this.least = Number(event.target.value); this.rebuild(); });
      find("#log-stamps").addEventListener("change", (event) => { this.stamps = event.target.value; this.redraw(); });
      find("#log-wrap").addEventListener("change", (event) => { this.view.classList.toggle("wrap", event.target.checked); this.redraw(); });
      let waiting;
      this.search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => this.look(this.search.value), 120); });
      this.search.addEventListener("keydown", (event) => {
        if (event.key !== "Enter") return;
        event.preventDefault();
        clearTimeout(waiting);
        if (this.term !== this.search.value.toLowerCase()) this.look(this.search.value); else this.step(event.shiftKey ? -1 : 1);
      });
      for (const button of this.querySelectorAll("[data-step]")) button.addEventListener("click", () => this.step(Number(button.dataset.step)));
      this.onHash = () => this.toHash();
      this.onSight = () => this.sight();
      addEventListener("hashchange", this.onHash);
      document.addEventListener("visibilitychange", this.onSight);
    }

    /* --- loading --- */
    async load() {
      this.showState(this.words.loading);
      let ended = false;
      for (let next = 0; next !== null && this.isConnected;) {
        const answer = await fetch(`/ui/runs/${encodeURIComponent(this.dataset.run)}/log.json?after=${next}`, { headers: { Accept: "application/json" } }).catch(() => null);
        if (!answer?.ok) return this.showState(this.words.failed);
        const found = await answer.json();
        this.add(found.lines.map(([number, at, level, text, length]) => ({ number, at, level, text, length })));
        ({ next, ended } = found);
      }
      this.end(ended);
      this.loaded = true;
      this.showState();
      this.toHash();
      // The run may have ended since the page was rendered.
      if (!ended) this.sight(); else if ("live" in this.dataset) this.tellEnd();
    }

    /* Streams only while the tab is visible: browsers limit connections per server. */
    sight() {
      if (!this.loaded || this.ended) return;
      if (document.hidden) { this.source?.close(); this.source = null; return; }
      if (this.source) return;
      const source = this.source = new EventSource(`/ui/runs/${encodeURIComponent(this.dataset.run)}/log/stream?after=${this.last}`);
      let batch = [];
      const flush = () => { const lines = batch; batch = []; this.add(lines); this.showState(); };
      source.onmessage = (event) => {
        const { number, at, level, message } = JSON.parse(event.data);
        if (!batch.length) setTimeout(flush, 50);
        batch.push({ number, at: Date.parse(at), level, text: message.slice(0, LONGEST), length: message.length > LONGEST ? message.length : undefined });
      };
      source.addEventListener("end", () => {
        flush();
        this.end(true);
        source.close();
        this.source = null;
        this.showState();
        this.tellEnd();
      });
      source.onerror = () => {
        if (source.readyState !== EventSource.CLOSED || this.source !== source) return;
        this.source = null;
        setTimeout(() => this.isConnected && this.sight(), 3000);
      };
    }

    end(ended) { this.ended = ended; this.view.classList.toggle("ended", ended); }

    tellEnd() { document.querySelector("#run-head")?.dispatchEvent(new CustomEvent("log-ended")); }

    showState(text) {
      const message = text ?? (this.lines.length ? (this.shown.length ? "" : this.words.hidden) : this.ended ? this.words.nothing : this.words.empty);
      this.state.textContent = message;
      this.state.hidden = !message;
      this.view.parentElement.hidden = !this.shown.length;
    }

    add(lines) {
      const taken = lines.filter((line) => line.number > this.last && (this.last = line.number));
      if (!taken.length) return;
      // One by one: a call has a limit of arguments.
      for (const line of taken) this.lines.push(line);
      const visible = taken.filter((line) => this.passes(line));
      this.append(visible);
      if (this.term) this.count();
      if (this.following) this.toEnd();
      else if (this.loaded && visible.length) { this.unread += visible.length; this.tellUnread(); }
    }

    passes(line) { return (LEVELS[line.level] ?? 20) >= this.least; }

    append(lines) {
      for (const line of lines) {
        let chunk = this.chunks.at(-1);
        if (!chunk || chunk.end - chunk.start >= CHUNK) {
          chunk = { start: this.shown.length, end: this.shown.length, node: document.createElement("div"), filled: false };
          chunk.node.className = "chunk";
          chunk.node.chunk = chunk;
          this.chunks.push(chunk);
          this.view.append(chunk.node);
          this.watcher.observe(chunk.node);
        }
        this.shown.push(line);
        chunk.end = this.shown.length;
        if (chunk.filled) chunk.node.append(this.drawn(line));
        else chunk.dirty = true;
      }
      for (const chunk of this.chunks) if (chunk.dirty) { chunk.dirty = false; chunk.node.style.height = `${(chunk.end - chunk.start) * LINE}px`; }
    }

    /* --- rendering --- */
    fill(chunk) {
      if (chunk.filled) return;
      chunk.filled = true;
      chunk.node.style.height = "";
      chunk.node.replaceChildren(...this.shown.slice(chunk.start, chunk.end).map((line) => this.drawn(line)));
    }

    empty(chunk) {
      if (!chunk.filled) return;
      chunk.filled = false;
      chunk.node.style.height = `${chunk.node.offsetHeight}px`;
      chunk.node.replaceChildren();
    }

    drawn(line) {
      const row = document.createElement("div");
      row.className = `line l-${line.level in LEVELS ? line.level : "info"}`;
      row.dataset.line = line.number;
      if (line.number === this.marked) row.classList.add("current");
      const number = document.createElement("a");
      number.className = "no";
      number.href = `#L${line.number}`;
      number.textContent = line.number;
      number.setAttribute("aria-label", fill(this.words.line, { number: line.number }));
      const at = document.createElement("span");
      at.className = "at";
      at.textContent = this.stamp(line);
      at.title = this.full.format(line.at);
      const level = document.createElement("span");
      level.className = "level";
      level.textContent = line.level;
      const text = document.createElement("bdi");
      text.className = "text";
      for (const [piece, name] of parsed(line.text)) this.piece(text, piece, name);
      if (line.length) this.piece(text, ` ${fill(this.words.truncated, { count: line.length.toLocaleString(document.documentElement.lang) })}`, "unseen");
      row.append(number, at, level, text);
      return row;
    }

    piece(into, text, name) {
      let target = into;
      if (name) {
        target = document.createElement("span");
        target.className = name;
        into.append(target);
      }
      const small = this.term ? text.toLowerCase() : "";
      // Lower case may have another length; then the match is not highlighted.
      if (!this.term || small.length !== text.length || !small.includes(this.term)) return void target.append(text);
      let at = 0;
      for (let found = small.indexOf(this.term); found >= 0; found = small.indexOf(this.term, at)) {
        target.append(text.slice(at, found));
        const mark = document.createElement("mark");
        at = found + this.term.length;
        mark.textContent = text.slice(found, at);
        target.append(mark);
      }
      target.append(text.slice(at));
    }

    stamp(line) {
      if (this.stamps === "start") return fill(this.words.since_start, { count: ((line.at - Number(this.dataset.start)) / 1000).toFixed(3) });
      if (this.stamps === "away") return fill(window.chimes.words.ago, { span: spanText(Math.max(0, Math.floor((now() - line.at) / 1000))) });
      return this.clock.format(line.at);
    }

    redraw() {
      const first = this.firstSeen();
      for (const chunk of this.chunks) {
        chunk.filled = false;
        chunk.node.replaceChildren();
        chunk.node.style.height = `${(chunk.end - chunk.start) * LINE}px`;
        // Checks visibility again.
        this.watcher.unobserve(chunk.node);
        this.watcher.observe(chunk.node);
      }
      if (this.following) this.toEnd(); else this.reveal(first, "start");
    }

    rebuild() {
      const line = this.shown[this.firstSeen()];
      this.watcher.disconnect();
      this.view.replaceChildren();
      this.chunks = [];
      this.shown = [];
      this.append(this.lines.filter((each) => this.passes(each)));
      this.showState();
      if (this.term) this.count();
      if (this.following) this.toEnd();
      else if (line) this.reveal(Math.max(0, this.shown.findIndex((each) => each.number >= line.number)), "start");
    }

    /* --- scrolling --- */
    firstSeen() {
      const top = this.view.getBoundingClientRect().top;
      const below = (node) => node.getBoundingClientRect().bottom > top;
      const chunk = this.chunks.find((each) => below(each.node));
      return chunk ? chunk.start + Math.max(0, [...chunk.node.children].findIndex(below)) : 0;
    }

    reveal(index, where = "middle") {
      const chunk = this.chunks[Math.floor(index / CHUNK)];
      if (!chunk) return null;
      this.fill(chunk);
      const row = chunk.node.children[index - chunk.start];
      // Neighbours get their real height when rendered, so the position is corrected once.
      const move = () => {
        const box = row.getBoundingClientRect(), frame = this.view.getBoundingClientRect();
        this.view.scrollTop += box.top - frame.top - (where === "middle" ? (frame.height - box.height) / 2 : 0);
      };
      move();
      requestAnimationFrame(() => requestAnimationFrame(() => row.isConnected && move()));
      return row;
    }

    mark(index) {
      this.follow(false);
      for (const row of this.view.querySelectorAll(".line.current")) row.classList.remove("current");
      this.marked = this.shown[index].number;
      this.reveal(index)?.classList.add("current");
    }

    toHash() {
      const number = Number(/^#L(\d+)$/.exec(location.hash)?.[1]);
      if (!number) return;
      if (this.least && this.shown.every((line) => line.number !== number)) { this.least = 0; this.querySelector("#log-level").value = "0"; this.rebuild(); }
      const index = this.shown.findIndex((line) => line.number === number);
      if (index < 0) return;
      this.view.scrollIntoView({ block: "center" });
      this.mark(index);
    }

    follow(wanted) {
      this.following = wanted;
      this.followBox.checked = wanted;
      if (wanted) { this.unread = 0; this.fresh.hidden = true; }
    }

    toEnd() { this.view.scrollTop = this.view.scrollHeight; this.top = this.view.scrollTop; this.tall = this.view.clientHeight; }

    scrolled() {
      const { scrollTop, scrollHeight, clientHeight } = this.view;
      if (clientHeight !== this.tall) {
        // The view was resized, not scrolled.
        this.tall = clientHeight;
        if (this.following) return void this.toEnd();
      }
      const end = scrollHeight - scrollTop - clientHeight < NEAR_END;
      if (end && !this.following && scrollTop > this.top) this.follow(true);
      else if (!end && this.following && scrollTop < this.top - 2) this.follow(false);
      this.top = scrollTop;
    }

    tellUnread() {
      this.fresh.textContent = this.unread === 1 ? this.words.new_one : fill(this.words.new_many, { count: this.unread });
      this.fresh.hidden = false;
    }

    /* --- search --- */
    look(text) {
      this.term = text.toLowerCase();
      this.match = -1;
      this.count();
      for (const chunk of this.chunks) if (chunk.filled) { chunk.filled = false; this.fill(chunk); }
      if (this.matches.length) this.step(1);
    }

    count() {
      const { term } = this;
      const plain = (line) => (line.plain ??= parsed(line.text).map(([piece]) => piece).join("").toLowerCase());
      this.matches = [];
      if (term) this.shown.forEach((line, index) => { if ((line.text.includes("\x1b") ? plain(line) : line.text.toLowerCase()).includes(term)) this.matches.push(index); });
      this.tellMatches();
    }

    step(by) {
      if (!this.matches.length) return;
      this.match = this.match < 0 && by < 0 ? this.matches.length - 1 : (this.match + by + this.matches.length) % this.matches.length;
      this.mark(this.matches[this.match]);
      this.tellMatches();
    }

    tellMatches() {
      const count = this.matches.length;
      this.matchesText.textContent = !this.term ? "" : count ? fill(this.words.matches, { at: this.match + 1, count }) : this.words.none;
    }
  }
  customElements.define("run-log", RunLog);

  /* --- running run --------------------------------------------------------------------------- */
  // Bars of the waterfall without an end grow, and the others shrink with the scale.
  function growWaterfall() {
    const bars = head.querySelector("svg.waterfall g[data-begin]");
    if (!bars?.querySelector("g[data-start]:not([data-end])")) return;
    const begin = Number(bars.dataset.begin), wide = Number(bars.dataset.wide), moment = now();
    const rows = [...bars.querySelectorAll("g[data-start]")].map((row) => ({ row, start: Number(row.dataset.start), end: row.dataset.end ? Number(row.dataset.end) : moment }));
    const whole = Math.max(1, ...rows.map(({ end }) => end - begin));
    for (const { row, start, end } of rows) {
      const x = wide * (start - begin) / whole, width = Math.max(.2, wide * (end - start) / whole);
      const bar = row.querySelector("rect"), text = row.querySelector("text");
      bar.setAttribute("x", `${x}%`);
      bar.setAttribute("width", `${width}%`);
      text.setAttribute("x", `${Math.min(x + width, wide)}%`);
      if (!row.dataset.end) text.textContent = spanText(Math.max(0, Math.floor((end - start) / 1000)));
    }
  }

  // The bar beside the duration: its middle is the usual duration.
  function growBar() {
    const since = head.querySelector("[data-since][data-usual]"), bar = head.querySelector(".against rect + rect");
    if (!since || !bar) return;
    const share = Math.min(2, (now() / 1000 - Number(since.dataset.since)) / Number(since.dataset.usual));
    bar.setAttribute("width", Math.max(1, share * 32));
    bar.setAttribute("class", share > 1.5 ? "over" : "usual");
  }

  if (head) {
    const refresh = () => head.dispatchEvent(new CustomEvent("log-ended"));
    setInterval(() => { growWaterfall(); growBar(); }, 1000);
    // Events can be lost while a connection is replaced, so a run in progress is read again.
    setInterval(() => { if (!document.hidden && head.querySelector("[data-active]")) refresh(); }, 10000);
    const ended = () => document.title = `${head.querySelector("h1 .status")?.textContent.trim().slice(0, 1) ?? ""} ${document.title.replace(/^[^\p{L}\p{N}]\s/u, "")}`;
    document.addEventListener("htmx:after:swap", ended);
    ended();
  }

  /* --- brush --------------------------------------------------------------------------------- */
  /* Refreshes the histogram at a limited rate, and not during a selection. */
  const PICTURE_REST = 5000;

  class RunBrush extends HTMLElement {
    connectedCallback() {
      this.hear = () => this.soon();
      document.addEventListener("runs.changed", this.hear);
      document.addEventListener("visibilitychange", this.hear);
      this.brushing();
      // Scrolls a wide histogram to the newest runs.
      const room = this.querySelector(".scroll");
      if (room) room.scrollLeft = room.scrollWidth;
    }
    disconnectedCallback() {
      clearTimeout(this.waiting);
      document.removeEventListener("runs.changed", this.hear);
      document.removeEventListener("visibilitychange", this.hear);
    }
    soon() {
      if (this.waiting || document.hidden) return;
      const wait = Math.max(0, (this.last ?? -PICTURE_REST) + PICTURE_REST - performance.now());
      this.waiting = setTimeout(() => {
        this.last = performance.now();
        this.waiting = 0;
        this.renew();
      }, wait);
    }
    async renew() {
      const answer = await fetch(this.dataset.again, { headers: { "HX-Request": "true" } }).catch(() => null);
      if (!answer?.ok) return;
      const holder = document.createElement("template");
      holder.innerHTML = await answer.text();
      if (this.held) { this.stale = true; return; }
      const focused = document.activeElement?.closest?.("run-brush svg a")?.querySelector("g[data-from]")?.dataset.from;
      for (const part of ["figcaption", "svg.histogram", "details.twin table"]) {
        const fresh = holder.content.querySelector(part);
        if (fresh) this.querySelector(part)?.replaceWith(fresh);
      }
      if (focused) this.querySelector(`g[data-from="${focused}"]`)?.closest("a")?.focus();
      const total = document.getElementById("window-total");
      if (total) total.textContent = holder.content.querySelector("[data-total]")?.textContent ?? "";
    }
    letGo() {
      this.held = false;
      if (this.stale) { this.stale = false; this.soon(); }
    }
    brushing() {
      let start = null, moved = false;
      const bars = () => [...this.querySelectorAll("svg.histogram g[data-from]")];
      const under = (event) => document.elementFromPoint(event.clientX, event.clientY)?.closest("g[data-from]");
      const range = (bar) => {
        const found = bars(), [from, to] = [found.indexOf(start), found.indexOf(bar)].sort((a, b) => a - b);
        return found.slice(from, to + 1);
      };
      const clear = () => bars().forEach((each) => each.classList.remove("in-brush"));
      this.addEventListener("dragstart", (event) => event.preventDefault());
      this.addEventListener("pointerdown", (event) => {
        start = event.button === 0 ? under(event) : null;
        moved = false;
        this.held = Boolean(start);
      });
      this.addEventListener("pointermove", (event) => {
        const bar = start && under(event);
        if (!bar || (bar === start && !moved)) return;
        moved = true;
        clear();
        for (const each of range(bar)) each.classList.add("in-brush");
      });
      document.addEventListener("pointerup", (event) => {
        const bar = start && moved && under(event);
        const chosen = bar ? range(bar) : [];
        start = null;
        clear();
        this.letGo();
        if (chosen.length) this.show(chosen[0].dataset.from, chosen.at(-1).dataset.to);
      });
      document.addEventListener("pointercancel", () => { start = null; clear(); this.letGo(); });
      this.addEventListener("click", (event) => { if (moved) { event.preventDefault(); moved = false; } }, true);
    }
    show(from, to) {
      const utc = (text) => new Date(text).toISOString().replace(".000Z", "Z");
      const rest = this.dataset.q.replace(/(^|\s)(since|until):("[^"]*"|\S+)/g, "").trim();
      const q = `${rest} since:"${utc(from)}" until:"${utc(to)}"`.trim();
      location.assign(`${this.dataset.address}?${new URLSearchParams({ q })}`);
    }
  }
  customElements.define("run-brush", RunBrush);
})();
