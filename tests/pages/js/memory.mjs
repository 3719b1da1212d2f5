// What a browser keeps of payments, in memory.

import { haveSameSigned } from "../../../svcd/pages/static/signed.mjs";

export class Memory {
  kept = new Map();
  payment = async (id) => structuredClone(this.kept.get(id) ?? null);
  payments = async () => structuredClone([...this.kept.values()]);
  keep = async (payment) => void this.kept.set(payment.id, structuredClone(payment));
  renew = async (payment) => {
    const now = this.kept.get(payment.id);
    if (now && !haveSameSigned(now, payment)) return structuredClone(now);
    await this.keep(payment);
    return payment;
  };
}
