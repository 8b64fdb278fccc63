// The console is for reading, from this machine, under its own name.
import http from "node:http";
import net from "node:net";
import os from "node:os";

const METHODS = ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];
const PATHS = ["/", "/decisions", "/bindings", "/gpu", "/latency", "/policies", "/assets/console.css", "/absent"];

function request(url, method, headers) {
  return new Promise((done, fail) => {
    const sent = http.request(url, { method, headers }, (response) => {
      response.resume();
      done(response);
    });
    sent.on("error", fail).end();
  });
}

export async function refusals({ url }) {
  const problems = [];
  for (const path of PATHS) {
    for (const method of METHODS) {
      const { statusCode } = await request(url + path, method);
      if (statusCode !== 405) problems.push(`${method} ${path}: ${statusCode}, not 405`);
    }
    for (const host of ["evil.example", "127.0.0.1.evil.example", "169.254.169.254"]) {
      const { statusCode } = await request(url + path, "GET", { host });
      if (statusCode < 400 || statusCode > 499) problems.push(`host ${host} ${path}: ${statusCode}`);
    }
  }
  const { headers } = await request(url, "GET");
  const policy = headers["content-security-policy"] ?? "";
  for (const part of ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"]) {
    if (!policy.includes(part)) problems.push(`content-security-policy lacks ${part}: ${policy}`);
  }
  if (/unsafe/.test(policy)) problems.push(`content-security-policy: ${policy}`);
  return [...problems, ...(await reachable(new URL(url).port))];
}

// Addresses of this machine, besides loopback, that accept connections.
async function reachable(port) {
  const others = Object.values(os.networkInterfaces()).flat().filter((address) => !address.internal && address.family === "IPv4");
  const tries = others.map(
    ({ address }) =>
      new Promise((done) => {
        const socket = net.connect({ host: address, port, timeout: 2000 });
        const end = (problem) => {
          socket.destroy();
          done(problem);
        };
        socket.on("connect", () => end([`it listens on ${address}`]));
        socket.on("error", () => end([])).on("timeout", () => end([]));
      }),
  );
  return (await Promise.all(tries)).flat();
}
