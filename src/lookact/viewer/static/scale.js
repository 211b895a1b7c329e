// From values to pixels: ranges, round ticks, straight and logarithmic. Pure.

// Round numbers from low to high, about so many.
export function roundTicks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.75) * power;
  const ticks = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index++) {
    ticks.push(Number((index * step).toPrecision(12)));
  }
  return ticks;
}

// Powers of ten from low to high; twos and fives too where there are few.
export function logTicks(low, high) {
  const ticks = [];
  const few = Math.log10(high / low) < 2.5;
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const factor of few ? [1, 2, 5] : [1]) {
      const tick = Number((factor * 10 ** power).toPrecision(6));
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  const stride = Math.ceil(ticks.length / 6);
  return ticks.filter((_, index) => index % stride === 0);
}

// Ticks of a time axis in seconds, at round minutes or hours.
export function timeTicks(low, high, count) {
  const rough = (high - low) / count;
  const steps = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400];
  const step = steps.find((each) => each >= rough) ?? 86400 * Math.ceil(rough / 86400);
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
  return ticks;
}

// The range of y to show: zero where it is near, a little air, only what is positive on a logarithmic axis.
export function heightRange(values, log) {
  const usable = log ? values.filter((value) => value > 0) : values;
  if (!usable.length) return log ? [0.1, 1] : [0, 1];
  let low = Infinity;
  let high = -Infinity;
  for (const value of usable) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  // rounding in a mean is no change
  if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) low = high;
  if (log) return low === high ? [low / 2, high * 2] : [low / 1.1, high * 1.1];
  if (low === high) {
    if (low === 0) return [0, 1];
    return low > 0 ? [0, high * 1.25] : [low * 1.25, 0];
  }
  const air = (high - low) * 0.06;
  if (low >= 0 && low <= 0.5 * high) return [0, high + air];
  return [low - air, high + air];
}

// A function from values to pixels.
export function pixelScale([low, high], [from, to], log) {
  if (log) {
    const span = Math.log(high / low) || 1;
    return (value) => (value > 0 ? from + ((to - from) * Math.log(value / low)) / span : from);
  }
  const span = high - low || 1;
  return (value) => from + ((to - from) * (value - low)) / span;
}
