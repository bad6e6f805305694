/* Today: the card of a timeline mark opens as a dialog, and running runs are kept up to date.
   Without scripts the card is a page. */
"use strict";
document.addEventListener("click", (event) => {
  const mark = event.target.closest?.('.timeline a[href^="/ui/fires/"]');
  if (!mark || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const back = encodeURIComponent(location.pathname + location.search);
  window.htmx.ajax("GET", `${mark.getAttribute("href")}&back=${back}`, { target: "#dialogs", swap: "innerHTML" });
});

// Shares of the usual duration are updated locally; last log lines are fetched while the tab is
// visible.
const REFRESH_INTERVAL = 5000;
setInterval(() => {
  for (const each of document.querySelectorAll("#today-running [data-since]")) {
    const seconds = Math.max(0, Math.floor(window.chimes.now() / 1000 - Number(each.dataset.since)));
    const meter = each.parentElement.querySelector("meter");
    if (meter) meter.value = Math.min(1, seconds / Number(each.dataset.usual));
  }
}, 1000);
setInterval(() => {
  const running = document.getElementById("today-running");
  if (!document.hidden && running?.querySelector("[data-since]")) window.htmx.trigger(running, "refresh");
}, REFRESH_INTERVAL);
