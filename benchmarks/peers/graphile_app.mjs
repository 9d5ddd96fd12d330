// The program of graphile-worker. Its folder, the working folder, holds the packages.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { text } from "node:stream/consumers";

const { run, makeWorkerUtils } = createRequire(`${process.cwd()}/`)("graphile-worker");

const TASK = "script";

// Run jobs until a signal: the command with the payload on stdin, in a process.
async function serve(slots, poll, program, ...args) {
  const runScript = (payload) =>
    new Promise((resolve, reject) => {
      const script = spawn(program, args, { stdio: ["pipe", "inherit", "inherit"] });
      script.on("error", reject);
      script.on("close", (code) =>
        code === 0 ? resolve() : reject(new Error(`exit status ${code}`)),
      );
      script.stdin.end(JSON.stringify(payload));
    });
  const runner = await run({
    taskList: { [TASK]: runScript },
    preset: {
      worker: {
        concurrentJobs: Number(slots),
        maxPoolSize: 20,
        pollInterval: Number(poll) * 1000,
        localQueue: { size: Number(slots) + 1 },
        completeJobBatchDelay: 0,
      },
    },
  });
  await runner.promise;
}

// Create the jobs on stdin.
async function create() {
  const jobs = JSON.parse(await text(process.stdin));
  const utils = await makeWorkerUtils({});
  try {
    await utils.addJobs(
      jobs.map(([at, payload]) => ({ identifier: TASK, payload, runAt: new Date(at) })),
    );
  } finally {
    await utils.release();
  }
}

const [what, ...options] = process.argv.slice(2);
await (what === "serve" ? serve(...options) : create());
