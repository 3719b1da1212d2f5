// Canonical JSON (RFC 8785) of what transfers, keyfiles and rules hold.

/** The one text of arrays, objects with ASCII keys, ASCII strings and integers.
 * @type {(value: unknown) => string} */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const sorted = Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1));
  const members = sorted.map(([name, each]) => `${JSON.stringify(name)}:${canonical(each)}`);
  return `{${members.join(",")}}`;
}
