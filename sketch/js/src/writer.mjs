// Writes: sent to the service, remembered, and kept where the answer is the whole object.

import { problemOf } from "./problems.mjs";
import { YOUNG } from "./reader.mjs";

export const WHOLE = "return=representation";

export class Writer {
  constructor(send, keeper, copies, ownWrites, now) {
    Object.assign(this, { send, keeper, copies, ownWrites, now });
  }

  /**
   * Sends a write.
   * @param ids the objects it writes to
   * @param options `ifMatch`, `idempotencyKey`, and `touches`: the keys it writes to, if they are others
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
      // Whatever came of it: it may have taken effect.
      this.ownWrites.note(options.touches ?? [name, ...ids.map((id) => `${name}/${id}#`)]);
    }
    if (response.status >= 400) throw problemOf(response);
    const { header, etag, body } = response;
    const isWhole = moreHeaders?.Prefer && header("preference-applied").includes(WHOLE);
    if (isWhole && etag && keeper.last?.groups[name])
      this.copies.put(path, { status: 200, etag, body, since, knows: this.now(), end: YOUNG, epoch: keeper.epoch });
    return {
      value: body ? JSON.parse(body) : null,
      etag,
      position: header("portolan-position"),
      location: header("location"),
    };
  }
}
