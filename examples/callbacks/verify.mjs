// Checks the signature of an HTTP callback of nextfire (Standard Webhooks), with Node's own modules.
//
//     verify(headers, body, ["whsec_…"])      headers: names in lower case; body: a Buffer
//
// Accepts v1 (HMAC-SHA256, secrets `whsec_…`) and v1a (ed25519, public keys `whpk_…`).

import { createHmac, createPublicKey, timingSafeEqual, verify as verifyWith } from "node:crypto";

const TOLERANCE = 5 * 60; // seconds
const SPKI = Buffer.from("302a300506032b6570032100", "hex"); // of an ed25519 key

export function verify(headers, body, keys, now = Date.now() / 1000) {
  const id = headers["webhook-id"];
  const timestamp = headers["webhook-timestamp"];
  const signatures = (headers["webhook-signature"] ?? "").split(" ");
  if (!id || !(Math.abs(now - Number(timestamp)) <= TOLERANCE)) return false;
  const signed = Buffer.concat([Buffer.from(`${id}.${timestamp}.`), body]);
  return signatures.some((each) => keys.some((key) => matches(each, key, signed)));
}

function matches(signature, key, signed) {
  const [version, text] = signature.split(",");
  const given = Buffer.from(text ?? "", "base64");
  const bytes = Buffer.from(key.slice(key.indexOf("_") + 1), "base64");
  if (version === "v1" && key.startsWith("whsec_")) {
    const expected = createHmac("sha256", bytes).update(signed).digest();
    return given.length === expected.length && timingSafeEqual(given, expected);
  }
  if (version === "v1a" && key.startsWith("whpk_")) {
    const spki = Buffer.concat([SPKI, bytes]);
    const publicKey = createPublicKey({ key: spki, format: "der", type: "spki" });
    return verifyWith(null, signed, publicKey, given);
  }
  return false;
}
