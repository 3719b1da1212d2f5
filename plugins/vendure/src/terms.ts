import type { ID, Payment } from '@vendure/core';
import { randomBytes } from 'node:crypto';

import type { NodePayment, ReceivedTransfer } from './svc-pay';
import type { Attempt } from './types';

/** The states of a payment that this plugin knows; `AwaitingTransfer` and `Undone` are its own. */
export type KnownState = 'AwaitingTransfer' | 'Authorized' | 'Settled' | 'Undone' | 'Cancelled';

/** The attempt of a payment, or undefined if it is one of another payment method. */
export function attemptOf(payment: Payment): Attempt | undefined {
    return (payment.metadata as { svc?: Attempt }).svc;
}

/** What a node says of an attempt at one moment. */
export interface Seen {
    payment: NodePayment;
    /** Whether the payment is confirmed, on a node that is on the chain of the network. */
    settled: boolean;
    /** Whether the time to pay is over, and the payment was not seen within it. */
    expired: boolean;
    /** The transfers under the reference, if some of them may not be the payment. */
    transfers: ReceivedTransfer[];
}

/** The beginnings of the references of payments and refunds. */
export const PAY = 'vendure.pay.';
export const REFUND = 'vendure.refund.';

/**
 * @description
 * A reference that was never used before, so that no attempt meets the payment of another one.
 *
 * It says nothing of the order: everybody can read it on the chain, and whoever knows the code of an order gets
 * name and address of its buyer from the Shop API, for two hours without logging in.
 */
export function newReference(kind: typeof PAY | typeof REFUND): string {
    return kind + randomBytes(8).toString('hex');
}

/** An integer amount of Vendure as a decimal: 1250 with a precision of 2 is "12.50". */
export function decimalOf(amount: number, precision: number): string {
    const digits = String(amount).padStart(precision + 1, '0');
    return precision === 0 ? digits : `${digits.slice(0, -precision)}.${digits.slice(-precision)}`;
}

/** What counts of a refund. */
export interface RefundPart {
    id: ID;
    state: string;
    total: number;
    metadata: object;
}

/**
 * @description
 * How much of the price of a payment is refunded already without one of its refunds: what is settled, and what
 * the staff was asked to pay back.
 */
export function refundedBefore(id: ID, refunds: RefundPart[]): number {
    return refunds
        .filter(other => other.id !== id && other.state !== 'Failed')
        .filter(other => other.state === 'Settled' || 'svc' in other.metadata)
        .reduce((sum, other) => sum + other.total, 0);
}

/**
 * @description
 * The base units of a refund of `part` of a price, after `before` of it was refunded: as much of the coins that
 * were paid as of the price. All refunds of a payment together are exactly its coins.
 */
export function coinsBack(coins: bigint, price: number, before: number, part: number): bigint {
    const until = (refunded: number) => (coins * BigInt(refunded)) / BigInt(price);
    return until(before + part) - until(before);
}

/** The state that follows from what the node says; null if the payment stays as it is. */
export function nextState(state: KnownState, seen: Seen): KnownState | null {
    const { payment, settled, expired } = seen;
    switch (state) {
        case 'AwaitingTransfer':
        case 'Authorized': {
            if (expired) return 'Cancelled';
            if (settled) return 'Settled';
            return state === 'AwaitingTransfer' && payment.state !== 'unpaid' ? 'Authorized' : null;
        }
        case 'Settled':
            // A node that is catching up does not know the chain of the network: that it does not show a payment
            // says nothing.
            return payment.state !== 'confirmed' && payment.node?.synced === true ? 'Undone' : null;
        case 'Undone':
            return settled ? 'Settled' : null;
        case 'Cancelled':
            return null;
    }
}

/** Why a state must not follow by hand from what the node has said last; null if it may. */
export function refusal(to: KnownState, attempt: Pick<Attempt, 'seen' | 'settled'>): string | null {
    const says = `the node has said last that the payment is ${attempt.seen}`;
    if (to === 'Settled' && !attempt.settled) return `A payment is settled when it is confirmed; ${says}.`;
    if (to === 'Authorized' && attempt.seen === 'unpaid') return `The payment is not there; ${says}.`;
    if (to === 'Undone' && attempt.seen === 'confirmed') return `The payment is not undone; ${says}.`;
    return null;
}

/** Of how many transfers the staff is told for each attempt: anybody may send more under its reference. */
export const MOST_TRANSFERS = 20;

export interface Note {
    /** What it is about, so that it is written once. */
    key: string;
    text: string;
}

const KINDS = {
    'too-little': 'it is too little',
    'too-much': 'it is too much',
    duplicate: 'the order was paid already',
    late: 'it came when the attempt to pay had ended',
};

/**
 * @description
 * What the staff must know, and was not told yet, of transfers that do not pay the attempt. Transfers that are in
 * no block are left out, because they may never be in one.
 */
export function transferNotes(state: KnownState, attempt: Attempt, seen: Seen): Note[] {
    const { reference, confirmations } = attempt.order;
    const notes = seen.transfers.flatMap(transfer => {
        const kind = transfer.mismatch ?? (state === 'Cancelled' ? 'late' : null);
        if (kind === null || !transfer.canonical) return [];
        const { txid, sender, amountSvc } = transfer;
        const text =
            `A transfer of ${amountSvc} coins under the reference ${reference} does not pay this order: ` +
            `${KINDS[kind]} (from ${sender}, transfer ${txid}). Proposed refund, once it has ${confirmations} ` +
            `confirmations: ${amountSvc} coins to ${sender}, with "svc wallet refund ${txid} --confirmations ${confirmations}".`;
        return [{ key: `${kind}:${txid}`, text }];
    });
    const fresh = notes.filter(note => !attempt.noted.includes(note.key));
    const left = MOST_TRANSFERS - attempt.noted.filter(key => key.includes(':')).length;
    if (fresh.length <= left) return fresh;
    const text = `There are further transfers under the reference ${reference}; the explorer of the node lists them.`;
    return [...fresh.slice(0, left), { key: 'more', text }];
}

/** The coins that arrived for an attempt in another amount than its own, and pay nothing. */
export function wrongAmounts(seen: Seen): string[] {
    const wrong = seen.transfers.filter(
        ({ canonical, mismatch }) => canonical && mismatch?.startsWith('too-'),
    );
    return wrong.map(({ amountSvc }) => amountSvc);
}

/** What the staff must know of a change of the state. */
export function stateNotes(
    from: KnownState,
    to: KnownState | null,
    attempt: Attempt,
    seen: Seen,
    order: { state: string },
): Note[] {
    const { reference } = attempt.order;
    if (to === 'Undone')
        return [
            {
                key: `undone-${attempt.turn}`,
                text:
                    `A reorganisation has undone the payment ${reference}. Ship nothing and refund nothing until it is ` +
                    'settled again; most such payments are confirmed again within some blocks.',
            },
        ];
    if (from === 'Undone' && to === null && seen.payment.state === 'unpaid')
        return [
            {
                key: 'lost',
                text:
                    `The node no longer knows a transfer for the undone payment ${reference}. If it does not come back, ` +
                    'the sender may have spent the coins otherwise: ask the buyer for another payment, or cancel the ' +
                    'payment and the order.',
            },
        ];
    if (to === 'Settled' && from !== 'Undone' && order.state === 'Cancelled')
        return [
            {
                key: 'order-cancelled',
                text: `The payment ${reference} is confirmed, but the order was cancelled: refund it, if no refund waits.`,
            },
        ];
    if (from === 'Authorized' && to === 'Cancelled')
        return [
            {
                key: 'never-confirmed',
                text:
                    `The payment ${reference} was seen, but never confirmed, and is cancelled. Ask the buyer for ` +
                    'another payment, or cancel the order, so that its stock is free again.',
            },
        ];
    return [];
}
