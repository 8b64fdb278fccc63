// What a new user wants to know, found by clicking from the overview. The pictures of the
// documentation are taken on the way.
import { mkdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { Tab } from "./browser.mjs";

const MAX_PICTURE_BYTES = 150_000;
const SIZE = { width: 1280, height: 800 };

class Walk {
  constructor(tab, folder) {
    this.tab = tab;
    this.folder = folder;
    this.problems = [];
  }

  // Clicks the first link with this text, or that starts with this path.
  async click(target) {
    const page = this.tab.page;
    const selector = target.startsWith("/") ? `main a[href^="${target}"]` : `main a:text("${target}"), header a:text("${target}")`;
    const before = page.url();
    await page.locator(selector).first().click({ timeout: 10_000 });
    await page.waitForURL((url) => `${url}` !== before, { timeout: 10_000 });
    await page.waitForLoadState("load");
  }

  async expect(what, ...texts) {
    const shown = await this.tab.page.evaluate(() => document.querySelector("main").textContent);
    for (const text of texts) if (!shown.includes(text)) this.problems.push(`${what}: ${this.tab.page.url()} does not show ${text}`);
  }

  // Of the page's top, or from this heading on.
  async picture(name, heading) {
    if (!this.folder) return;
    if (heading) await this.tab.page.locator(`h2:text("${heading}")`).first().evaluate((element) => element.scrollIntoView({ block: "start" }));
    const path = join(this.folder, `console-${name}.png`);
    await this.tab.page.screenshot({ path });
    const { size } = await stat(path);
    if (size > MAX_PICTURE_BYTES) this.problems.push(`${path}: ${size} bytes, at most ${MAX_PICTURE_BYTES}`);
  }
}

export async function walkthrough(browser, { url }, folder) {
  if (folder) await mkdir(folder, { recursive: true });
  const tab = await Tab.open(browser, SIZE.width, "light");
  await tab.page.setViewportSize(SIZE);
  const walk = new Walk(tab, folder);
  try {
    await tab.visit(url);
    const why = "the nearest of the others, north-3, is 900us away, the limit of latency is 100us; a limit of 900us would admit one";
    await walk.expect("the overview", "Violation", "times the limit", why, "Pods without a node");
    await walk.picture("overview");

    // Why does a pod wait?
    await walk.click("Pods without a node");
    await walk.click("/decisions/vision/tracker-0");
    await walk.expect("why a pod waits", why, "0 of 4 nodes usable", "latency/OverLimit", "900us to north-1 > 100us", "insufficient nvidia.com/gpu-shared");
    await walk.picture("decision", "Nodes and rules");

    // Which card is wasted?
    await tab.visit(url);
    await walk.click("GPU");
    await walk.expect("which card is wasted", "north-3", "batch-0");
    await walk.picture("gpu", "Nodes");

    // Which pair of nodes broke its limit?
    await tab.visit(`${url}/bindings`);
    await walk.picture("bindings");
    await walk.click("/bindings/vision/trackers");
    await walk.expect("which limit broke", "Violation", "900us > 100us between north-1 and north-3");
    await walk.picture("binding");
    await walk.click("/latency/pair/");
    await walk.expect("which pair broke it", "north-1", "north-3", "900us");

    await tab.visit(`${url}/latency`);
    await walk.picture("latency");
    await tab.visit(`${url}/policies`);
    await walk.picture("policies");
    return [...walk.problems, ...(await tab.takeProblems())];
  } finally {
    await tab.close();
  }
}
