// The browser, and pages that note everything that goes wrong.
import { chromium } from "playwright-core";
import axe from "axe-core";

export const WIDTHS = [360, 1280, 2560];
export const THEMES = ["dark", "light"];

export function launch() {
  const args = ["--no-sandbox", "--disable-gpu", "--font-render-hinting=none"];
  return chromium.launch({ executablePath: process.env.CHROMIUM, args });
}

export class Tab {
  static async open(browser, width, theme) {
    const viewport = { width, height: 900 };
    const context = await browser.newContext({ viewport, colorScheme: theme });
    // Nothing but the console may be asked for anything.
    await context.route((url) => url.hostname !== "127.0.0.1", (route) => route.abort());
    await context.addInitScript(() => {
      window.refused = [];
      document.addEventListener("securitypolicyviolation", (event) =>
        window.refused.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`),
      );
    });
    const tab = new Tab(await context.newPage());
    tab.page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) tab.problems.push(message.text());
    });
    tab.page.on("pageerror", (error) => tab.problems.push(`${error}`));
    tab.page.on("dialog", (dialog) => {
      tab.problems.push(`a dialog: ${dialog.message()}`);
      dialog.dismiss();
    });
    tab.page.on("response", (response) => {
      if (response.status() >= 400) tab.problems.push(`${response.status()} ${response.url()}`);
    });
    return tab;
  }

  constructor(page) {
    this.page = page;
    this.problems = [];
  }

  async visit(url) {
    await this.page.goto(url, { waitUntil: "load" });
    await this.page.waitForFunction(() => window.htmx !== undefined);
  }

  // What has gone wrong since the last call.
  async takeProblems() {
    const refused = await this.page.evaluate(() => window.refused.splice(0));
    return [...this.problems.splice(0), ...refused.map((text) => `CSP: ${text}`)];
  }

  // Elements that make the page wider than the window.
  tooWide() {
    return this.page.evaluate(() => {
      const width = document.documentElement.clientWidth;
      if (document.documentElement.scrollWidth <= width) return [];
      const scrolls = (element) => element.closest(".scroll") && !element.matches(".scroll");
      const wide = [...document.querySelectorAll("body *")].filter(
        (element) => element.getBoundingClientRect().right > width + 1 && !scrolls(element),
      );
      return wide.slice(0, 5).map((element) => element.outerHTML.slice(0, 200));
    });
  }

  // Violations of accessibility rules, as lines.
  async inaccessible() {
    // Not as a script element, which the content security policy forbids.
    await this.page.evaluate(axe.source);
    const result = await this.page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    return result.violations.flatMap((violation) =>
      violation.nodes.slice(0, 3).map((node) => `${violation.id}: ${violation.help}: ${node.html.slice(0, 200)} ${node.failureSummary.split("\n").pop()}`),
    );
  }

  close() {
    return this.page.context().close();
  }
}
