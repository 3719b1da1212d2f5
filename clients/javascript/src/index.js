// Receive and verify payments of a svcd node; README.md has examples, index.d.ts the types.

export {
  COIN,
  DEVNET,
  MAINNET,
  MINIMUM_FEE,
  NETWORKS,
  formatAmount,
  networkOf,
  parseAmount,
  refundReference,
} from "./chain.js";
export { checkoutUrl, Client, MAXIMUM_FEE } from "./client.js";
export {
  ApiError,
  InvalidAnswer,
  InvalidInput,
  InvalidProof,
  InvalidSignature,
  NodeUnreachable,
  SvcPayError,
  WaitTimeout,
} from "./errors.js";
export { isSettled } from "./members.js";
export { checkProof } from "./proof.js";
export { Key, signTransfer } from "./wallet.js";
export { EVENT_NAMES, isWatchEvent, Webhook } from "./webhooks.js";
