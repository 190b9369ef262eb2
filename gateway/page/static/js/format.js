// Numbers and times as text.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

export const ABSENT = "–";

export function units(value) {
  return value === undefined || value === null ? ABSENT : whole.format(value);
}

export function brief(value) {
  return short.format(value);
}

export function percent(part) {
  return part === undefined ? ABSENT : `${(100 * part).toFixed(part > 0 && part < 0.1 ? 1 : 0)} %`;
}

export function seconds(value) {
  if (value === undefined) {
    return ABSENT;
  }
  if (value === 0) {
    return "0 s";
  }
  if (value < 1) {
    return `${(1000 * value).toFixed(value < 0.01 ? 1 : 0)} ms`;
  }
  return value < 10 ? `${value.toFixed(1)} s` : `${whole.format(value)} s`;
}

// A name as people read it: of digests, as some programs name their users, the beginning tells them apart.
export function shortened(name) {
  return name.replace(/[0-9a-f]{24,}/g, (digest) => `${digest.slice(0, 8)}…`);
}

// Unix seconds as the time of day.
export function time(value) {
  return clock.format(new Date(1000 * value));
}

// The order of names for readers: worker-2 before worker-10.
export const inOrder = new Intl.Collator("en", { numeric: true }).compare;

export function counted(number, noun) {
  return `${units(number)} ${noun}${number === 1 ? "" : "s"}`;
}
