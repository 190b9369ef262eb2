// JSON merge patches (RFC 7396). Objects have no prototype: a client may be named "__proto__".

export function apply(document, patch) {
  const result = Object.assign(Object.create(null), document);
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) {
      delete result[name];
    } else if (typeof value === "object" && !Array.isArray(value)) {
      const known = result[name];
      result[name] = apply(known !== null && typeof known === "object" ? known : {}, value);
    } else {
      result[name] = value;
    }
  }
  return result;
}
