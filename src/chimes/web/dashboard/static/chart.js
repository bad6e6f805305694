/* <line-chart data-from="#id-of-json" or data-address="/ui/…"> around uPlot. The data:
   {"times": [unix, …], "lines": [{"name", "values": [number|null, …], "tone": "accent"}], "unit": "{count} s",
    "zone": "Asia/Bangkok", "when": "Time", "marks": [{"at": unix, "text"}], "limit": number|null} */
"use strict";
(() => {
  const TONES = ["accent", "warn", "bad", "ok", "info"];

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
      const show = (value) => (value == null ? "–" : window.chimes.fill(data.unit || "{count}", { count: Number(value.toPrecision(3)).toLocaleString(language) }));
      this.plot?.destroy();
      this.plot = new uPlot({
        ...this.size(),
        tzDate: zoned,
        scales: { y: { range: (_, low, high) => [0, Math.max(high, data.limit || 0) * 1.05 || 1] } },
        axes: [{ ...axis, values: ticks }, { ...axis, size: 60, values: (_, values) => values.map(show) }],
        series: [{ label: data.when || "", value: (_, stamp) => (stamp == null ? "–" : moment.format(stamp * 1000)) }, ...data.lines.map((each, index) => ({ label: each.name, stroke: colour(each.tone || TONES[index % TONES.length]), width: 1.5, dash: index ? [6, 3 + index] : undefined, value: (_, value) => show(value) }))],
        hooks: { draw: [(plot) => this.marks(plot, data, colour)] },
      }, [data.times, ...data.lines.map((each) => each.values)], this);
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
