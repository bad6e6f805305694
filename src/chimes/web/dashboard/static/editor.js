/* Schedule editor: error messages, zone picker, cron help, and the preview as a sheet on phones. */
"use strict";
(() => {
  const form = document.querySelector("#editor");
  if (!form) return;
  const $ = (selector) => form.querySelector(selector);
  const all = (selector) => [...form.querySelectorAll(selector)];
  const changed = (field) => field.dispatchEvent(new Event("input", { bubbles: true }));

  /* --- errors of the preview, shown at their fields -------------------------------------------- */
  function applyPreview() {
    const errors = new Map(all("#preview .errors li").map((each) => [each.dataset.for, each.textContent]));
    for (const slot of all("[data-error]")) {
      const text = errors.get(slot.dataset.error) || "";
      if (slot.textContent !== text) slot.textContent = text;
      slot.hidden = !text;
      const field = document.getElementById(`f-${slot.dataset.error}`);
      // An error in a folded section unfolds it.
      if (text) for (let at = slot.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
      if (text) field?.setAttribute("aria-invalid", "true");
      else field?.removeAttribute("aria-invalid");
    }
    for (const name of ["cron-parts", "world"]) {
      const fresh = $(`#${name}-new`);
      if (fresh) $(`#${name}`).replaceChildren(...fresh.childNodes);
      fresh?.remove();
    }
    for (const fresh of all("[data-brief-new]")) {
      $(`[data-brief="${fresh.dataset.briefNew}"]`).textContent = fresh.textContent;
      fresh.remove();
    }
    explain();
    tick();
    const head = $("#preview-head");
    head.textContent = $("#preview [data-head]")?.textContent ?? "";
  }
  document.addEventListener("htmx:after:swap", (event) => {
    const target = event.detail?.ctx?.target ?? event.target;
    if (!target || target.id === "preview" || target.closest?.("#preview")) applyPreview();
    if ($("#zones") && target?.id === "zones") openZones();
  });
  const head = $("#preview-head");
  head.textContent = $("#preview [data-head]")?.textContent ?? "";

  /* --- editing a field removes its guess mark -------------------------------------------------- */
  form.addEventListener("input", (event) => {
    const name = event.target.name;
    if (!name) return;
    const mark = $(`[data-guess="${CSS.escape(name)}"]`);
    if (!mark) return;
    mark.remove();
    const guessed = $("[data-guessed]");
    guessed.value = guessed.value.split(",").filter((each) => each && each !== name).join(",");
  });

  /* --- changing the type of an exclusion clears its value --------------------------------------- */
  form.addEventListener("input", (event) => {
    const kind = /^(ex\d+)_kind$/.exec(event.target.name ?? "");
    const value = kind && $(`#f-${kind[1]}_value`);
    if (value) value.value = "";
  });

  /* --- description: Enter applies it, Shift+Enter inserts a line --------------------------------- */
  $("#f-words").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $("#read").click();
  });

  /* --- buttons that fill a field ---------------------------------------------------------------- */
  form.addEventListener("click", (event) => {
    const chip = event.target.closest("[data-fill]");
    if (!chip) return;
    event.preventDefault();
    const field = $(`#f-${chip.dataset.fill}`);
    field.value = chip.dataset.value;
    changed(field);
    field.focus();
  });

  /* --- zones ------------------------------------------------------------------------------------ */
  const zone = $("#f-zone"), zones = $("#zones");
  const options = () => [...zones.querySelectorAll("[data-zone]")];
  function openZones() {
    const some = options().length > 0 && document.activeElement === zone;
    zones.hidden = !some;
    zone.setAttribute("aria-expanded", String(some));
    options().forEach((each, place) => { each.id = `zone-${place}`; each.tabIndex = -1; });
    zone.removeAttribute("aria-activedescendant");
  }
  function closeZones() {
    zones.hidden = true;
    zone.setAttribute("aria-expanded", "false");
    zone.removeAttribute("aria-activedescendant");
  }
  function take(option) {
    zone.value = option.dataset.zone;
    $("[data-zone-sure]").value = option.dataset.zone;
    closeZones();
    zone.focus();
    // "change" updates the preview without starting a search.
    zone.dispatchEvent(new Event("change", { bubbles: true }));
    $('[data-guess="zone"]')?.remove();
  }
  zones.addEventListener("mousedown", (event) => event.preventDefault());
  zones.addEventListener("click", (event) => {
    const option = event.target.closest("[data-zone]");
    if (!option) return;
    event.preventDefault();
    take(option);
  });
  zone.addEventListener("focus", () => { if (options().length) openZones(); });
  zone.addEventListener("blur", closeZones);
  zone.addEventListener("keydown", (event) => {
    const found = options(), at = found.findIndex((each) => each.ariaSelected === "true");
    if (event.key === "Escape") return closeZones();
    if (zones.hidden || !found.length) return undefined;
    if (event.key === "Enter") {
      event.preventDefault();
      return take(found[Math.max(at, 0)]);
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return undefined;
    event.preventDefault();
    const next = found[(at + step + found.length) % found.length];
    found.forEach((each) => { each.ariaSelected = String(each === next); });
    zone.setAttribute("aria-activedescendant", next.id);
    next.scrollIntoView({ block: "nearest" });
    return undefined;
  });
  if (!zones.hidden) options().forEach((each, place) => { each.id = `zone-${place}`; });

  /* --- the cron field under the caret ------------------------------------------------------------ */
  const expression = $("#f-expression");
  /* Position of each field; a zone prefix is not a field. */
  function partsOf(text) {
    return [...text.matchAll(/\S+/g)]
      .map((each) => ({ start: each.index, end: each.index + each[0].length, text: each[0] }))
      .filter((each, place) => place > 0 || !/^(CRON_)?TZ=/.test(each.text));
  }
  function explain() {
    const caret = expression.selectionStart ?? 0;
    const at = document.activeElement === expression || document.activeElement?.closest("#cron-parts")
      ? partsOf(expression.value).findLastIndex((each) => each.start <= caret) : -1;
    for (const each of all("#cron-parts [data-part]")) {
      const on = Number(each.dataset.part) === at;
      each.classList.toggle("on", on);
      each.querySelectorAll("[data-put]").forEach((button) => { button.hidden = !on; });
    }
  }
  for (const name of ["input", "keyup", "click", "focus"]) expression.addEventListener(name, explain);
  $("#cron-parts").addEventListener("click", (event) => {
    const row = event.target.closest("[data-part]");
    const part = row && partsOf(expression.value)[Number(row.dataset.part)];
    if (!part) return;
    const put = event.target.closest("[data-put]")?.dataset.put;
    if (put) expression.setRangeText(put, part.start, part.end, "end");
    expression.focus();
    const end = put ? part.start + put.length : part.end;
    expression.setSelectionRange(part.start, end);
    if (put) changed(expression);
    explain();
  });

  /* --- world clock, by the server's time ---------------------------------------------------------- */
  function tick() {
    const now = new Date(window.chimes?.now?.() ?? Date.now());
    for (const each of all("[data-clock]")) {
      const format = new Intl.DateTimeFormat(document.documentElement.lang, {
        timeZone: each.dataset.clock, weekday: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23",
      });
      const parts = Object.fromEntries(format.formatToParts(now).map((part) => [part.type, part.value]));
      const text = `${parts.weekday} ${parts.hour}:${parts.minute}`;
      if (each.textContent !== text) each.textContent = text;
    }
  }
  setInterval(tick, 10_000);

  /* --- the preview is a sheet on phones ----------------------------------------------------------- */
  const preview = $(".preview");
  preview.classList.add("sheet");
  if (matchMedia("(max-width: 899px)").matches) for (const each of [preview.querySelector("details"), $(".presets")]) each.open = false;

  const first = document.querySelector("#summary a, #question button, #conflict");
  if (first) first.scrollIntoView({ block: "center" });
})();
