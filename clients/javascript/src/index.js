// Receive and verify payments of a svcd node; README.md has examples, index.d.ts the types.

export {
  checkAddress,
  DEVNET,
  formatCoins,
  MAINNET,
  MINIMUM_FEE,
  NETWORKS,
  networkOf,
  parseAmount,
  refundReference,
} from "./chain.js";
export { checkoutUrl, Client, MAXIMUM_FEE } from "./client.js";
export {
  ApiError,
  ImpossibleAmount,
  InvalidAnswer,
  InvalidInput,
  InvalidProof,
  InvalidSignature,
  JournalError,
  NodeUnreachable,
  PayoutRefused,
  RateRefused,
  StoreError,
  SvcPayError,
  WaitTimeout,
} from "./errors.js";
export { DEFAULT_CONFIRMATIONS } from "./light/orders.mjs";
export { COIN, formatAmount } from "./light/units.mjs";
export { isSettled } from "./members.js";
export { Orders } from "./orders.js";
export { parseNetwork } from "./network-file.js";
export { Payouts } from "./payouts.js";
export { orderAmount, RateSource } from "./rates.js";
export { Key, signTransfer } from "./wallet.js";
export { concerns, EVENT_NAMES, isWatchEvent, noticeOf, settles, Webhook } from "./webhooks.js";
