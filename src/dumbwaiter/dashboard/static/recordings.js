/* Reads a recording that somebody dropped, so far as to show it. The worker reads more shapes, and checks; it says what is wrong. */

const LARGEST = 64e6;  // bytes; what is larger is exported unseen

/** The events of a file, or null if they cannot be shown here. */
export async function eventsOf(file) {
  if (file.size > LARGEST) return null;
  try {
    return found(parsed(await textOf(file)));
  } catch {
    return null;
  }
}

async function textOf(file) {
  const start = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const packed = start[0] === 0x1f && start[1] === 0x8b ? "gzip" : start[0] === 0x78 ? "deflate" : null;
  const stream = packed ? file.stream().pipeThrough(new DecompressionStream(packed)) : file.stream();
  return (await new Response(stream).text()).replace(/^\ufeff/, "");
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text.split("\n").filter((line) => line.trim()).flatMap((line) => JSON.parse(line));  // one event, or some, a line
  }
}

function found(value) {
  const events = (Array.isArray(value) ? value : value.events ?? value.data?.events ?? [])
    .map((event) => (typeof event === "string" ? JSON.parse(event) : event))
    .filter((event) => Number.isFinite(event?.timestamp) && Number.isFinite(event.type));
  events.sort((one, other) => one.timestamp - other.timestamp);
  return events.length > 1 && events.some((event) => event.type === 2) ? events : null;
}

/** What stands for a file's content in a key: the same file dropped again finds its video. */
export async function fingerprint(file) {
  if (!crypto.subtle) return `${file.name}-${file.size}-${file.lastModified}`.slice(-100);  // over plain http to another machine
  const digest = await crypto.subtle.digest("SHA-256", await file.arrayBuffer());
  return Array.from(new Uint8Array(digest, 0, 8), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
