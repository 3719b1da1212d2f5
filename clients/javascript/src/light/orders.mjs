// What an order asks for, as clients and payment links name it (docs/payments.md).

import { REFERENCE } from "./transaction.mjs";

/** How many confirmations an order requires that does not say. */
export const DEFAULT_CONFIRMATIONS = 12;

/** Whether an order can require so many confirmations.
 * @type {(count: unknown) => count is number} */
export const isDepth = (count) => typeof count === "number" && Number.isInteger(count) && count >= 1 && count <= 1000;

/** Whether a payment can be asked for under a reference: . and .. are no part of a path.
 * @type {(text: unknown) => text is string} */
export const isReference = (text) => typeof text === "string" && REFERENCE.test(text) && !/^\.\.?$/.test(text);
