// Numbers as text.

/** 75.25 -> "1:15.3"; `digits` are the decimals of the seconds. */
export function clock(seconds, digits = 1) {
  const scale = 10 ** digits;
  const whole = Math.round(Math.max(0, seconds) * scale);
  const rest = (whole % (60 * scale)) / scale;
  const minutes = Math.floor(whole / (60 * scale));
  const tail = rest.toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
  if (minutes < 60) return `${minutes}:${tail}`;
  return `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${tail}`;
}

/** A length of time in words: "4.2 s", "3 min 20 s", "1 h 5 min". */
export function length(seconds) {
  if (seconds < 60) return `${Number(seconds.toFixed(1))} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** 1 -> "1 event", 2 -> "2 events". */
export const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

/** A label as it is read: "glass_breaking" -> "glass breaking". */
export const readable = (label) => label.replaceAll("_", " ");

/** An event in words. */
export function eventText(event) {
  const score = event.score === undefined || event.score === null ? "" : `, score ${event.score.toFixed(2)}`;
  return `${readable(event.event_label)}, ${event.onset.toFixed(2)} to ${event.offset.toFixed(2)} s${score}`;
}

/** 250 -> "250 Hz", 2000 -> "2 kHz". */
export const hertz = (f) => (f < 1000 ? `${f} Hz` : `${Number((f / 1000).toFixed(1))} kHz`);
