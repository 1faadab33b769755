// Numbers in readable form, with units.

// Days before its end from which a certificate is to be renewed, as for `gatun doctor`.
const RENEW_DAYS = 14;
const PREFIXES = ["", "k", "M", "G", "T"];

// 12345 as "12,345", as in the texts of the daemon.
export function count(n) {
  return Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, ",");
}

// Three significant digits and the unit prefix: 1234567 as ["1.23", "M"].
export function scaled(n) {
  let step = 0;
  while (step < PREFIXES.length - 1 && Math.abs(n) >= 999.5) {
    n /= 1000;
    step += 1;
  }
  const digits = step === 0 && Number.isInteger(n) ? 0 : n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2;
  return [step === 0 && digits > 1 ? n.toFixed(1) : n.toFixed(digits), PREFIXES[step]];
}

// Quantity with its unit: "1.23 Mbit/s".
export function quantity(n, unit) {
  const [digits, prefix] = scaled(n);
  return `${digits}\u00a0${prefix}${unit}`.trimEnd();
}

// Round quantity, for the levels of a plot: "50 kbit/s".
export function level(n, unit) {
  const [digits, prefix] = scaled(n);
  return `${Number(digits)}\u00a0${prefix}${unit}`.trimEnd();
}

// Rate per second.
export function rate(n) {
  if (n > 0 && n < 0.1) return "<\u20090.1/s";
  const [digits, prefix] = scaled(n);
  return `${digits}${prefix && "\u00a0" + prefix}/s`;
}

export function percent(used, total) {
  if (!total) return "–";
  const share = (used * 100) / total;
  if (share === 0) return "0\u00a0%";
  if (share < 0.1) return "<\u20090.1\u00a0%";
  return `${share.toFixed(share < 10 ? 1 : 0)}\u00a0%`;
}

// Count with its noun: "1 session", "2 addresses".
export const many = (n, what) => `${count(n)} ${what}${n === 1 ? "" : what.endsWith("s") ? "es" : "s"}`;

// Difference of another box's clock, if it is more than a second; `ms` is positive if that clock is ahead.
export function clockFault(whose, ms) {
  if (Math.abs(ms ?? 0) <= 1000) return null;
  return `the clock of ${whose} is ${duration(Math.abs(ms) / 1000)} ${ms > 0 ? "ahead" : "behind"}`;
}

// End of a certificate, if it is near, or was before.
export function ending(certificate, end_s) {
  const days = Math.floor(((end_s ?? Infinity) - Date.now() / 1000) / 86400);
  if (days >= RENEW_DAYS) return null;
  return days < 0 ? `${certificate} has ended` : `${certificate} ends in ${many(days, "day")}`;
}

const two = (n) => String(n).padStart(2, "0");

export function duration(seconds) {
  const [d, h, m, s] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60, Math.floor(seconds) % 60];
  if (d) return `${d}\u00a0d ${two(h)}:${two(m)}`;
  if (h) return `${h}\u00a0h ${two(m)}\u00a0min`;
  if (m) return `${m}\u00a0min ${two(s)}\u00a0s`;
  return `${s}\u00a0s`;
}

// Local time of a moment in milliseconds since 1970: "03:12:59".
export function clock(ms, withSeconds = true) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}${withSeconds ? ":" + two(at.getSeconds()) : ""}`;
}

// The same with its date: "2026-01-31 03:12:59".
export function moment(ms) {
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(ms)}`;
}

// Address and port in the usual notation.
export function end(address, port) {
  const at = port === null || port === undefined ? "?" : port;
  return address.includes(":") ? `[${address}]:${at}` : `${address}:${at}`;
}
