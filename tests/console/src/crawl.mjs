// The pages of a server, found by their links: some of each kind.
const PER_KIND = 2;
// Of views that differ in the fields of the query only.
const MAX_VIEWS = 4;
// Objects' names differ, the rest of a path is the kind of its page.
const SECTIONS = /^\/(?:|[a-z]+(?:\/pair)?)(?=\/|$)/;

function kind(path) {
  const [route, query = ""] = path.split("?");
  const section = route.match(SECTIONS)?.[0] ?? route;
  const depth = route.slice(section.length).split("/").length;
  const fields = query.split("&").map((field) => field.split("=")[0]);
  return { route: `${section}:${depth}`, view: `${section}:${depth}:${fields.sort().join(",")}` };
}

// Up to `perKind` pages of each kind.
export async function pages(url, perKind = PER_KIND) {
  const found = new Set();
  const counts = new Map();
  const queue = ["/"];
  while (queue.length > 0) {
    const path = queue.shift();
    if (found.has(path)) continue;
    const { route, view } = kind(path);
    const count = (name) => counts.get(name) ?? 0;
    if (count(view) >= perKind || count(route) >= perKind * MAX_VIEWS) continue;
    counts.set(view, count(view) + 1).set(route, count(route) + 1);
    found.add(path);
    const response = await fetch(url + path);
    const body = await response.text();
    if (response.status !== 200) throw new Error(`${path}: status ${response.status}\n${body}`);
    for (const [, href] of body.matchAll(/ href="(\/[^"#]*)/g)) {
      const link = href.replaceAll("&amp;", "&");
      if (!link.startsWith("/assets/") && !link.includes("format=json")) queue.push(link);
    }
  }
  return [...found];
}
