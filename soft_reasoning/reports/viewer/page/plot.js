// The points u of a problem in two dimensions, coloured by reward; circles are right, squares wrong.

const SCALE = [[84, 50, 140], [59, 92, 152], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

function colour(share) {
  const place = Math.max(0, Math.min(1, share)) * (SCALE.length - 1);
  const from = Math.min(Math.floor(place), SCALE.length - 2);
  const mix = SCALE[from].map((value, i) => Math.round(value + (place - from) * (SCALE[from + 1][i] - value)));
  return `rgb(${mix.join(" ")})`;
}

function rewardScale(candidates) {
  const rewards = candidates.map((c) => c.reward).filter((r) => typeof r === "number");
  const low = Math.min(...rewards);
  const high = Math.max(...rewards);
  const share = (reward) => (high > low ? (reward - low) / (high - low) : 1);
  return { low, high, known: rewards.length > 0, of: (reward) => (typeof reward === "number" ? colour(share(reward)) : "var(--muted)") };
}

function plotOf(map, candidates, scale, onPoint) {
  const [width, height, edge] = [420, 300, 26];
  const all = [...map.points, map.zero].filter((p) => p.every((v) => typeof v === "number"));
  const range = (axis) => {
    const values = all.map((p) => p[axis] ?? 0);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return high > low ? [low, high] : [low - 1, high + 1];
  };
  const [xs, ys] = [range(0), range(1)];
  const x = (p) => edge + ((p[0] - xs[0]) / (xs[1] - xs[0])) * (width - 2 * edge);
  const y = (p) => height - edge - (((p[1] ?? 0) - ys[0]) / (ys[1] - ys[0])) * (height - 2 * edge);
  const zero = map.zero;
  const [zx, zy] = [x(zero), y(zero)];
  const origin = svg("g", { class: "zero" },
    svg("path", { d: `M${zx - 6} ${zy}H${zx + 6}M${zx} ${zy - 6}V${zy + 6}` }),
    svg("text", { x: zx + 8, y: zy - 7, class: "label" }, "u = 0"));
  // A number stands on the side of its point that is free; on none, it shows when the point is pointed at.
  const taken = [...map.points.map((p) => [x(p), y(p)]), [zx + 18, zy - 10], [zx, zy]];
  const labelOf = (px, py) => {
    const sides = [[0, -15], [17, 0], [-17, 0], [0, 15], [13, -13], [-13, -13], [13, 13], [-13, 13]];
    const free = sides.map(([dx, dy]) => [px + dx, py + dy])
      .find(([lx, ly]) => lx > 8 && lx < width - 8 && ly > 8 && ly < height - 8 && taken.every(([ox, oy]) => (ox === px && oy === py) || Math.hypot(lx - ox, ly - oy) > 13));
    if (free) taken.push(free);
    return free;
  };
  const points = map.points.map((p, i) => {
    const c = candidates[i];
    const [px, py] = [x(p), y(p)];
    const shape = c.right === false
      ? svg("rect", { x: px - 7, y: py - 7, width: 14, height: 14, rx: 2 })
      : svg("circle", { cx: px, cy: py, r: 8 });
    shape.style.setProperty("fill", scale.of(c.reward));
    const label = labelOf(px, py);
    const told = `candidate ${i + 1}, round ${c.round + 1}: ${c.answer ?? "no answer"}, reward ${c.reward === undefined ? "none" : number(c.reward)}`;
    return svg("g", {
      class: `point ${c.right ? "right" : ""}`, "data-candidate": i, tabindex: 0, role: "link", "aria-label": told,
      onclick: () => onPoint(i),
      onkeydown: (event) => { if (event.key === "Enter") { event.stopPropagation(); onPoint(i); } },
    }, svg("title", {}, told), shape, label
      ? svg("text", { x: label[0], y: label[1] + 3.5 }, String(i + 1))
      : svg("text", { x: px, y: py - 11.5, class: "hidden" }, String(i + 1)));
  });
  const stops = SCALE.map((_, i) => svg("stop", { offset: i / (SCALE.length - 1), "stop-color": colour(i / (SCALE.length - 1)) }));
  const [first, second] = map.shares;
  return el("figure", { class: "map" },
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "candidates by u" }, origin, points),
    el("figcaption", {},
      scale.known && scale.high > scale.low
        ? el("span", { class: "legend" }, `reward ${number(scale.low)}`,
            svg("svg", { viewBox: "0 0 80 8", class: "ramp", "aria-hidden": "true" },
              svg("defs", {}, svg("linearGradient", { id: "ramp" }, stops)),
              svg("rect", { width: 80, height: 8, rx: 2, fill: "url(#ramp)" })),
            number(scale.high))
        : null,
      el("span", {}, "● right  ■ wrong"),
      el("span", {}, `two principal axes, ${Math.round(100 * (first + (second ?? 0)))} % of the variance`)));
}
