// Writes: sent to the service, recorded, and cached if the response is the whole object.

import { problemOf } from "./problems.mjs";
import { NO_TTL } from "./reader.mjs";

export const RETURN_OBJECT = "return=representation";

export class Writer {
  constructor(send, keeper, copies, ownWrites, now) {
    Object.assign(this, { send, keeper, copies, ownWrites, now });
  }

  /**
   * Sends a write.
   * @param ids the objects it writes to
   * @param options `ifMatch`, `idempotencyKey`, and `touches`: the keys it writes to, if not those of `ids`
   */
  async write(method, name, ids, path, options, moreHeaders, value) {
    const { keeper } = this;
    const since = this.now();
    const headers = {
      "Content-Type": value && "application/json",
      "If-Match": options.ifMatch,
      "Idempotency-Key": options.idempotencyKey,
      ...moreHeaders,
    };
    let response;
    try {
      response = await this.send(path, headers, { method, body: JSON.stringify(value) });
    } finally {
      // Even a failed write may have taken effect.
      this.ownWrites.note(options.touches ?? [name, ...ids.map((id) => `${name}/${id}#`)]);
    }
    if (response.status >= 400) throw problemOf(response);
    const { header, etag, body } = response;
    const hasObject = moreHeaders?.Prefer && header("preference-applied").includes(RETURN_OBJECT);
    if (hasObject && etag && keeper.last?.groups[name])
      this.copies.put(path, {
        status: 200, etag, body, since, knows: this.now(), expiresUs: NO_TTL, epoch: keeper.epoch,
      });
    return {
      value: body ? JSON.parse(body) : null,
      etag,
      position: header("portolan-position"),
      location: header("location"),
    };
  }
}
