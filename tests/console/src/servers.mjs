// Processes of the console, and their addresses.
import { spawn } from "node:child_process";

const START_MS = 60_000;

export class Server {
  // Starts `tautline ARGS...`, and waits for the line with its URL.
  static async start(name, args) {
    // Paths of the examples are shown, and in pictures.
    const child = spawn(process.env.TAUTLINE, args, { cwd: process.env.REPO, stdio: ["pipe", "pipe", "pipe"] });
    const server = new Server(name, child);
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => (server.output += text));
    }
    const deadline = Date.now() + START_MS;
    while (!server.url) {
      server.url = server.output.match(/http:\/\/127\.0\.0\.1:\d+/)?.[0];
      if (child.exitCode !== null || Date.now() > deadline) {
        child.kill("SIGKILL");
        throw new Error(`tautline ${args.join(" ")} did not start:\n${server.output}`);
      }
      await new Promise((done) => setTimeout(done, 50));
    }
    return server;
  }

  constructor(name, child) {
    this.name = name;
    this.child = child;
    this.output = "";
  }

  // As a user presses Enter.
  enter() {
    this.child.stdin.write("\n");
  }

  async stop() {
    const ended = new Promise((done) => this.child.once("exit", done));
    if (this.child.exitCode !== null) return;
    this.child.kill("SIGINT");
    const late = setTimeout(() => this.child.kill("SIGKILL"), 30_000);
    await ended;
    clearTimeout(late);
  }
}

// Waits until `holds` gives a true value, which is returned.
export async function until(what, holds, limitMs = 60_000) {
  const deadline = Date.now() + limitMs;
  for (;;) {
    const value = await holds();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`not within ${limitMs / 1000} s: ${what}`);
    await new Promise((done) => setTimeout(done, 100));
  }
}
