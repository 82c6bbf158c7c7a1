// From what runs measured to what a chart draws: seeds as one line with their band, smoothed, along steps, tokens or time.
/* global uPlot */

// What curves may be drawn along, and how a place on that axis is told.
export const AXES = {
  step: ["steps", (v) => `step ${v}`],
  tokens: ["sampled tokens", (v) => `${short(v)} tokens`],
  time: ["time", (v) => duration(v)],
};

export function duration(seconds) {
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 6000) return `${+(seconds / 60).toFixed(1)} min`;
  return `${+(seconds / 3600).toFixed(1)} h`;
}

const UNITS = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];

// What a value is told in, and how that is written behind the number.
function unit(value) {
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-3) {
    const power = Math.floor(Math.log10(size));
    return [10 ** power, `e${power}`];
  }
  return UNITS.find(([least]) => size >= least) ?? [1, ""];
}

export function short(value) {
  const [size, letter] = unit(value);
  return `${+(value / size).toFixed(size < 1 ? 0 : size > 1 ? 1 : 3)}${letter}`;
}

// The numbers beside an axis, with as many decimals as tell each from the next.
export function ticks(values) {
  const known = values.filter((v) => v !== null);
  if (known.length < 2) return values.map((v) => (v === null ? "" : short(v)));
  const apart = Math.min(...known.slice(1).map((v, i) => v - known[i]));
  const tiny = known.every((v) => Math.abs(v) < 1e-3);
  const told = known.map((v) => [v, ...(tiny || Math.abs(v) >= 1 ? unit(v) : [1, ""])]);
  const off = (digits) => told.some(([v, size]) => Math.abs(+(v / size).toFixed(digits) * size - v) > apart / 100);
  let digits = 0;
  while (digits < 9 && off(digits)) digits += 1;
  const words = new Map(told.map(([v, size, letter]) => [v, `${+(v / size).toFixed(digits)}${letter}`]));
  return values.map((v) => words.get(v) ?? "");
}

// What an axis of values shows: nothing that they cannot be, and a flat line in the middle, not at the bottom of a made-up hundred.
export function range(low, high, [least, most]) {
  if (low === null || high === null) return [0, 1];
  const room = Math.abs(low) * 0.1 || 1;
  const [from, to] = low < high ? uPlot.rangeNum(low, high, 0.1, true) : [low - room, high + room];
  return [Math.max(from, Math.min(low, least)), Math.min(to, Math.max(high, most))];
}

// The runs that are drawn as one line: those that differ by their seed alone, where seeds are to be one.
export function gathered(chosen, runs, together) {
  const groups = new Map();
  for (const name of chosen) {
    const recipe = runs.find((run) => run.name === name)?.recipe;
    const key = (together && recipe) || `run ${name}`;
    groups.set(key, [...(groups.get(key) ?? []), name]);
  }
  return [...groups.values()];
}

// `of` gives the steps, values and places of a run. A line has its own steps too, to find the debates behind a point.
export function line(names, of) {
  const each = names.map(of).map(once);
  if (each.length === 1) return { names, ...each[0] };
  const at = new Map();
  for (const { steps, values, x } of each)
    steps.forEach((step, i) => {
      if (values[i] !== null) at.set(step, [...(at.get(step) ?? []), [x[i], values[i]]]);
    });
  const steps = [...at.keys()].sort((a, b) => a - b);
  const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
  const over = (index, what) => steps.map((step) => what(at.get(step).map((pair) => pair[index])));
  return {
    names,
    steps,
    x: over(0, mean),
    values: over(1, mean),
    low: over(1, (list) => Math.min(...list)),
    high: over(1, (list) => Math.max(...list)),
  };
}

// A step that was measured twice keeps its last value: the chart wants each step once, in order.
function once([steps, values, x = steps]) {
  if (steps.every((step, i) => i === 0 || step > steps[i - 1])) return { steps, values, x };
  const last = new Map(steps.map((step, i) => [step, i]));
  const order = [...last.keys()].sort((a, b) => a - b);
  const take = (list) => order.map((step) => list[last.get(step)]);
  return { steps: order, values: take(values), x: take(x) };
}

export function smoothed(values, weight) {
  let mean = null;
  return values.map((value) => {
    if (value === null) return null;
    mean = mean === null ? value : weight * mean + (1 - weight) * value;
    return mean;
  });
}

// What is drawn of a line, one column each; `role` says what it is for.
export function columns(found, weight, log) {
  const drawn = (values) => (log ? values.map((v) => (v > 0 ? v : null)) : values);
  return found.flatMap((one, i) => {
    const column = (role, values) => ({ role, line: i, x: one.x, values: drawn(values) });
    return [
      ...(one.low ? [column("high", one.high), column("low", one.low)] : weight ? [column("faint", one.values)] : []),
      column("value", weight ? smoothed(one.values, weight) : one.values),
    ];
  });
}

// uPlot wants each place once, in order; a step that took no tokens stands where the one before it did.
export function table({ x, values }) {
  const last = [...new Map(x.map((place, i) => [place, values[i]]))].sort(([a], [b]) => a - b);
  return [last.map(([place]) => place), last.map(([, value]) => value)];
}
