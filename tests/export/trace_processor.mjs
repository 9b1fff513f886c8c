// Perfetto's trace processor, built for browsers, run in Node: bytes of its RPC stream in, bytes of its answers out.
// node trace_processor.mjs FOLDER REQUESTS ANSWERS, where FOLDER holds its script and its WebAssembly.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runInThisContext } from "node:vm";

const [folder, requests, answers] = process.argv.slice(2);

// what the script expects of the worker that it runs in
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.location = { href: "" };
globalThis.XMLHttpRequest = class {
  open() {}
  send() {
    this.response = readFileSync(join(folder, "trace_processor.wasm"));
  }
};
const { Module } = WebAssembly;
WebAssembly.Module = function () {
  WebAssembly.Module = Module; // its first module only asks whether memory may be of 64 bits; the one here is of 32
  throw new Error("32 bits");
};
runInThisContext(readFileSync(join(folder, "engine_bundle.node.js"), "utf8"));
await new Promise((ready) => setTimeout(ready)); // it begins in promises

const parts = [];
const port = { postMessage: (bytes) => parts.push(Buffer.from(bytes)) };
globalThis.onmessage({ data: port });
port.onmessage({ data: new Uint8Array(readFileSync(requests)) });
writeFileSync(answers, Buffer.concat(parts));
