/* <line-chart data-from="#id-of-json" or data-address="/ui/…"> around uPlot. The data:
   {"times": [unix, …], "lines": [{"name", "values": [number|null, …], "tone": "accent"}], "unit": "{count} s",
    "zone": "Asia/Bangkok", "when": "Time", "marks": [{"at": unix, "text"}], "limit": number|null} */
"use strict";
(() => {
  const TONES = ["accent", "warn", "bad", "ok", "info"];
  // Lines differ in colour, dashes and width.
  const DASHES = [undefined, [9, 4], [2, 3], [12, 3, 2, 3], [5, 5]], WIDTHS = [2.5, 2, 2, 1.5, 1.5];
  // Peaks far above the other values are cut off and marked, so that they do not flatten the rest.
  const OUTLIER = 3, ABOVE = 1.5;

  function topOf(data) {
    const values = data.lines.flatMap((each) => each.values).filter((each) => each != null).sort((a, b) => a - b);
    const high = values.at(-1) ?? 0, p95 = values[Math.max(0, Math.ceil(values.length * .95) - 1)] ?? 0;
    const top = high > OUTLIER * p95 && p95 > 0 ? p95 * ABOVE : high;
    return Math.max(top, data.limit || 0) * 1.05 || 1;
  }

  class LineChart extends HTMLElement {
    connectedCallback() {
      this.draw();
      this.theme = matchMedia("(prefers-color-scheme: dark)");
      this.again = () => this.draw();
      this.theme.addEventListener("change", this.again);
      this.room = new ResizeObserver(() => this.plot?.setSize(this.size()));
      this.room.observe(this);
    }
    disconnectedCallback() {
      this.theme.removeEventListener("change", this.again);
      this.room.disconnect();
      this.plot?.destroy();
    }
    size() { return { width: Math.max(240, this.clientWidth), height: Number(this.dataset.height || 220) }; }
    async read() {
      if (this.dataset.from) return JSON.parse(document.querySelector(this.dataset.from).textContent);
      const answer = await fetch(this.dataset.address, { headers: { Accept: "application/json" } });
      return answer.json();
    }
    async draw() {
      const data = await this.read().catch(() => null);
      if (!data || !data.times.length || !this.isConnected) return;
      const colour = (name) => {
        // light-dark() is resolved by a real element only.
        const probe = document.createElement("i");
        probe.style.color = `var(--${name})`;
        this.append(probe);
        const found = getComputedStyle(probe).color;
        probe.remove();
        return found;
      };
      const muted = colour("muted"), line = colour("line");
      const axis = { stroke: muted, grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
      const zone = data.zone || "UTC", language = document.documentElement.lang;
      // Gregorian and by 24 hours, as everything else on the page.
      const shown = (options) => new Intl.DateTimeFormat(language, { timeZone: zone, calendar: "gregory", hourCycle: "h23", ...options });
      const day = shown({ day: "numeric", month: "short" });
      const clock = shown({ hour: "2-digit", minute: "2-digit" }), exact = shown({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
      const moment = shown({ day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
      const ticks = (_, stamps, __, ___, step) => stamps.map((stamp) => (step >= 86400 ? day : step >= 60 ? clock : exact).format(stamp * 1000));
      const zoned = (stamp) => uPlot.tzDate(new Date(stamp * 1000), zone);
      const top = topOf(data);
      const show = (value) => (value == null ? "–" : window.chimes.fill(data.unit || "{count}", { count: Number(value.toPrecision(3)).toLocaleString(language) }));
      this.plot?.destroy();
      this.plot = new uPlot({
        ...this.size(),
        tzDate: zoned,
        scales: { y: { range: () => [0, top] } },
        axes: [{ ...axis, values: ticks, label: zone, labelSize: 18, labelFont: "11px system-ui" }, { ...axis, size: 60, values: (_, values) => values.map(show) }],
        series: [{ label: data.when || "", value: (_, stamp) => (stamp == null ? "–" : moment.format(stamp * 1000)) }, ...data.lines.map((each, index) => ({ label: each.name, stroke: colour(each.tone || TONES[index % TONES.length]), width: WIDTHS[index % WIDTHS.length], dash: DASHES[index % DASHES.length], spanGaps: true, value: (_, value) => show(value) }))],
        hooks: { draw: [(plot) => { this.marks(plot, data, colour); this.peaks(plot, data, colour, top, show); }] },
      }, [data.times, ...data.lines.map((each) => each.values)], this);
    }
    // A triangle and the value where the highest line leaves the chart.
    peaks(plot, data, colour, top, show) {
      const { ctx, bbox } = plot;
      const highest = data.times.map((_, at) => Math.max(...data.lines.map((each) => each.values[at] ?? 0)));
      ctx.save();
      ctx.fillStyle = colour("bad");
      ctx.font = `${11 * devicePixelRatio}px system-ui`;
      let last = -Infinity;
      highest.forEach((value, at) => {
        const x = plot.valToPos(data.times[at], "x", true), size = 5 * devicePixelRatio;
        if (value <= top || x < bbox.left || x > bbox.left + bbox.width) return;
        ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x - size, bbox.top + 2 * size); ctx.lineTo(x + size, bbox.top + 2 * size); ctx.fill();
        const left = x > bbox.left + bbox.width * .85;
        ctx.textAlign = left ? "right" : "left";
        if (x - last > 60 * devicePixelRatio) { ctx.fillText(show(value), left ? x - size - 2 : x + size + 2, bbox.top + 2 * size); last = x; }
      });
      ctx.restore();
    }
    marks(plot, data, colour) {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.lineWidth = devicePixelRatio;
      const rule = (x1, y1, x2, y2, tone) => {
        ctx.strokeStyle = colour(tone);
        ctx.setLineDash([4, 4]);
        ctx.beginPath(); ctx.moveTo(x1, y1); ctx.lineTo(x2, y2); ctx.stroke();
      };
      if (data.limit) {
        const y = plot.valToPos(data.limit, "y", true);
        rule(bbox.left, y, bbox.left + bbox.width, y, "bad");
      }
      let last = -Infinity, row = 0;
      for (const mark of data.marks || []) {
        const x = plot.valToPos(mark.at, "x", true);
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        rule(x, bbox.top, x, bbox.top + bbox.height, "quiet");
        // Marks close together stand below each other, and those at the end on the other side.
        row = x - last < 80 * devicePixelRatio ? (row + 1) % 8 : 0;
        last = x;
        const left = x > bbox.left + bbox.width * 0.8;
        ctx.fillStyle = colour("muted");
        ctx.font = `${11 * devicePixelRatio}px system-ui`;
        ctx.textAlign = left ? "right" : "left";
        ctx.fillText(mark.text.slice(0, 30), left ? x - 3 : x + 3, bbox.top + (12 + 13 * row) * devicePixelRatio);
      }
      ctx.restore();
    }
  }
  customElements.define("line-chart", LineChart);
})();
