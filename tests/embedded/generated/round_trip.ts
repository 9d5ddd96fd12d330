// A round trip with the types that openapi-typescript generates: node round_trip.js URL KEY
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

declare const process: { argv: string[] };

const [url, key] = process.argv.slice(2);
const api = createClient<paths>({
  baseUrl: url,
  headers: { Authorization: `Bearer ${key}` },
});
const path = { jobId: "generated-typescript" };
const body = {
  type: "MANUAL" as const,
  target: { handler: "report" },
  labels: { by: "types" },
};
const put = { params: { path, header: { "If-None-Match": "*" } }, body };

const created = await api.PUT("/v1/jobs/{jobId}", put);
const again = await api.PUT("/v1/jobs/{jobId}", put);
const got = await api.GET("/v1/jobs/{jobId}", { params: { path } });
const listed = await api.GET("/v1/jobs", {
  params: { query: { label: ["by:types"] } },
});
const run = await api.POST("/v1/jobs/{jobId}/run", {
  params: { path },
  body: { reason: "a round trip" },
});
const runs = await api.GET("/v1/jobs/{jobId}/executions", { params: { path } });
const deleted = await api.DELETE("/v1/jobs/{jobId}", { params: { path } });
console.log(
  created.response.status,
  again.response.status,
  got.data?.jobId,
  listed.data?.items.map((each) => ("jobId" in each ? each.jobId : "")).join(),
  run.data?.state,
  runs.data?.items.length === 1,
  deleted.data?.state,
);
