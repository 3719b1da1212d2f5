import type { ID, LanguageCode } from '@vendure/core';

import type { Quote, State, StoredOrder } from './svc-pay';

/**
 * @description
 * A svcd node that the shop asks. Its secrets stay on the server: the settings of a payment method name the
 * node, and neither the Admin API nor a page shows them.
 */
export interface SvcPayNode {
    /** The URL at which the Vendure server and worker reach the node. */
    url: string;
    /** The management token of the node's webhooks. */
    token: string;
    /** The signing secret of the node's webhooks; while it is being rotated, the new one and the old one. */
    signingSecret: string | string[];
    /**
     * The URL at which buyers reach the node's pages. With it a payment has a link to the node's checkout.
     */
    publicUrl?: string;
    /** Whether the token may be sent over `http://` to another computer, as in a network of containers. */
    insecureHttp?: boolean;
    /** What `svc network show --json` prints; only for a network other than mainnet and devnet. */
    network?: string;
}

export interface SvcPayPluginOptions {
    /** The nodes by name. The settings of a payment method choose one of them. */
    nodes: { [name: string]: SvcPayNode };
    /** The URL at which the nodes reach this Vendure server, without a path. */
    serverUrl: string;
}

/** The settings of a payment method, as `svcPayArgs` describes them. */
export interface SvcPaySettings {
    node: string;
    recipient: string;
    confirmations: number;
    minutesToPay: number;
    currency: string;
    rate: string;
    rateUrl: string;
    ratePath: string;
    rateMaxAge: number;
}

/** What the storefront gets as `payment.metadata.public`. */
export interface PublicMetadata {
    reference: string;
    recipient: string;
    /** In coins, such as "2.5". */
    amount: string;
    /** What the network calls its coins, such as "SVC". */
    unit: string;
    /** The link for the buyer's wallet. */
    paymentUri: string;
    checkoutUrl?: string;
    /** The path, on the Vendure server, of the picture of the QR code of `paymentUri`. */
    qrCodePath: string;
    /** Until when the payment must have been seen by the node, in Unix milliseconds. */
    payUntil: number;
    confirmations: number;
    requiredConfirmations: number;
    /** What the node has said of the payment last. */
    seen: State;
    /** The coins, each such as "2.4", that arrived in another amount than this one: they pay nothing. */
    wrongAmounts: string[];
}

/** A note for the staff in the history of an order. */
export interface Note {
    /** What it is about, so that it is written once. */
    key: string;
    /** What has happened. */
    what: string;
    /** What is to be done about it; or by what it was done, or that it holds no longer. */
    todo: string;
    /** It is withdrawn if what it says no longer holds; information neither ends nor asks for anything. */
    state: 'open' | 'done' | 'withdrawn' | 'information';
}

/** A note with the id of its entry in the history. */
export interface WrittenNote extends Note {
    entry: ID;
}

/** One attempt of a buyer to pay, as it is stored in `payment.metadata.svc`. */
export interface Attempt {
    /** The name of the node in the options of the plugin. */
    node: string;
    /** The channel and the language of the buyer, in which the order goes on. */
    channelId: ID;
    languageCode: LanguageCode;
    /** The URL at which the buyer reached Vendure, for the links that Vendure makes, as in e-mails. */
    origin: string;
    order: StoredOrder;
    /** What the network calls its coins. */
    unit: string;
    quote: Quote;
    watch: string;
    payUntil: number;
    /** What the node has said last. `Settled` follows from it, and from nothing else. */
    seen: State;
    settled: boolean;
    confirmations: number;
    txid?: string;
    /** The height of the highest block with a transfer under the reference, as the node has said last. */
    top?: number;
    /** Counts the answers of the node that were stored: an answer is only stored onto the one before it. */
    turn: number;
    /** When it began, and when the node was asked last, in Unix milliseconds. */
    begunAt: number;
    askedAt: number;
    /** What the staff was told of. */
    notes: WrittenNote[];
}

/** The payment back to the sender, as it is stored in `refund.metadata.svc`. */
export interface PaymentBack {
    node: string;
    order: StoredOrder;
    /** What the network calls its coins. */
    unit: string;
    paymentUri: string;
    /** When the watch at the node ends, in Unix milliseconds. */
    watchedUntil: number;
    seen: State;
    settled: boolean;
    /** Whether it was settled once, though a reorganisation may have undone it. */
    wasSettled: boolean;
    txid?: string;
    /** The height of its block, as the node has said last. */
    top?: number;
    turn: number;
    begunAt: number;
    askedAt: number;
    /** The ids of the entries with its notes, by key; buyers can read the metadata of a refund, and no entry. */
    notes: { [key: string]: ID };
}
