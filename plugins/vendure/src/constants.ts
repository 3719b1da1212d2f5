export const SVC_PAY_OPTIONS = Symbol('SVC_PAY_OPTIONS');
export const loggerCtx = 'SvcPayPlugin';
/** The first part of the path of the webhook. */
export const ROUTE = 'svc-pay';
/** The largest body of an event, in bytes; the node sends at most a quarter of it. */
export const BODY_LIMIT = 16_384;
/** The code of the payment method handler. */
export const CODE = 'svc-pay';
/** The type of this plugin's entries in the history of an order: Vendure would show a note as one of the buyer. */
export const SVC_PAY_NOTE = 'SVC_PAY_NOTE';
