import { rm } from "node:fs/promises";
import { join } from "node:path";
import { launch } from "./browser.mjs";
import { pages } from "./crawl.mjs";
import { everyPage } from "./every_page.mjs";
import { gone } from "./gone.mjs";
import { hostile } from "./hostile.mjs";
import { keyboard } from "./keyboard.mjs";
import { writeLargeCluster } from "./large.mjs";
import { live } from "./live.mjs";
import { filter, phone } from "./phone.mjs";
import { refusals } from "./refusals.mjs";
import { Server, until } from "./servers.mjs";
import { tabs } from "./tabs.mjs";
import { walkthrough } from "./walkthrough.mjs";
import { writing } from "./writing.mjs";

const started = Date.now();
const folder = import.meta.dirname;
const servers = [];
let failed = 0;

function report(what, problems) {
  const seconds = Math.round((Date.now() - started) / 1000);
  console.error(`console: ${seconds}s ${problems.length === 0 ? "ok" : "FAILED"}: ${what}`);
  for (const problem of problems) console.error(`    ${problem}`);
  failed += problems.length;
}

async function check(what, run) {
  report(what, await run().catch((error) => [error.stack]));
}

async function start(name, args) {
  const server = await Server.start(name, args);
  servers.push(server);
  return server;
}

// All pods that wait have been placed, and bindings are there.
const settled = (server, count) =>
  until(`${count} bindings of ${server.name}`, async () => {
    const view = await (await fetch(`${server.url}/bindings?format=json`)).json();
    return view.bindings.total >= count;
  });

await rm(process.env.SHOTS, { recursive: true, force: true });
const browser = await launch();
try {
  const demo = await start("demo", ["demo", "--ui"]);
  await check("a page shows changes by itself", () => live(browser, demo));
  for (let step = 0; step < 6; step++) demo.enter();
  await settled(demo, 5);
  await check("all but GET, and other hosts, are refused", () => refusals(demo));
  await check("the keyboard reaches everything", () => keyboard(browser, demo));
  await check("many tabs are live", () => tabs(browser, demo));
  await check("a live page disturbs nobody", () => writing(browser, demo));
  await check("what is gone is not shown", () => gone(browser, demo));

  const examples = ["edge-inference", "console"].flatMap((name) => ["-f", join("examples", name)]);
  const faults = await start("faults", ["ui", ...examples, "--provider-namespaces", "*"]);
  await settled(faults, 6);
  await check("a new user finds what is wrong", () => walkthrough(browser, faults, process.env.DOCS));

  await check("a phone shows cards", () => phone(browser, faults));
  await check("tables are filtered while one types", () => filter(browser, faults));

  const odd = await start("hostile", ["ui", "-f", join(folder, "../hostile")]);
  await settled(odd, 1);
  const large = await start("large", ["ui", "-f", await writeLargeCluster()]);
  await settled(large, 3_000);
  await check("every page of the demonstration", async () => everyPage(browser, demo, await pages(demo.url)));
  await check("hostile texts are texts", async () => hostile(browser, odd, await pages(odd.url, 4)));
  const narrow = { widths: [360], themes: ["dark"] };
  await check("every page with hostile texts", async () => everyPage(browser, odd, await pages(odd.url), narrow));
  const usual = { widths: [1280], themes: ["light"] };
  await check("every page of a larger cluster", async () => everyPage(browser, large, await pages(large.url), usual));
} catch (error) {
  report("the test", [error.stack]);
} finally {
  await browser.close();
  await Promise.all(servers.map((server) => server.stop()));
}
process.exitCode = failed === 0 ? 0 : 1;
