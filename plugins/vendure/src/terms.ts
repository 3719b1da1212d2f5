import type { ID, Payment, Refund } from '@vendure/core';
import { randomBytes } from 'node:crypto';

import type { NodePayment, ReceivedTransfer } from './svc-pay';
import type { Attempt, Note, PaymentBack } from './types';

/** The states of a payment that this plugin knows; `AwaitingTransfer` and `Undone` are its own. */
export type KnownState = 'AwaitingTransfer' | 'Authorized' | 'Settled' | 'Undone' | 'Cancelled';

/** The attempt of a payment, or undefined if it is one of another payment method. */
export function attemptOf(payment: Payment): Attempt | undefined {
    const { svc } = payment.metadata as { svc?: Attempt };
    // An attempt that an older version has stored has no notes with states, and names no coins.
    return svc && { ...svc, notes: svc.notes ?? [], unit: svc.unit ?? 'SVC' };
}

/** The payment back of a refund, or undefined if it is none in coins, or not prepared yet. */
export const backOf = (refund: Refund) => (refund.metadata as { svc?: PaymentBack }).svc;

/** What a node says of an attempt at one moment. */
export interface Seen {
    payment: NodePayment;
    /** Whether the payment is confirmed, on a node that is on the chain of the network. */
    settled: boolean;
    /** Whether the time to pay is over, and the payment was not seen within it. */
    expired: boolean;
    /** The transfers under the reference, if some of them may not be the payment. */
    transfers: ReceivedTransfer[];
    /** What was sent back to the senders of transfers that do not pay, by sender. */
    sentBack: Map<string, ReceivedTransfer[]>;
}

/**
 * @description
 * The height of the highest block with a transfer under a reference; undefined if there is none. What a node says that
 * is catching up lowers it not: the chain of the network may have the transfer.
 */
export function topOf(
    { blockHeight, node }: Pick<NodePayment, 'blockHeight' | 'node'>,
    transfers: ReceivedTransfer[],
    before: number | undefined,
): number | undefined {
    const told = [blockHeight, ...transfers.filter(each => each.canonical).map(each => each.blockHeight)];
    const heights = told.filter(height => height !== undefined).map(Number);
    if (node?.synced !== true && before !== undefined) heights.push(before);
    return heights.length > 0 ? Math.max(...heights) : undefined;
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

const KINDS = {
    'too-little': 'it is too little',
    'too-much': 'it is too much',
    duplicate: 'the order was paid already',
    late: 'it came when the attempt to pay had ended',
};

const TRANSFER = 'transfer:';
const onTheWay = (txid: string) =>
    `The transfer ${txid} sends the coins back, and waits for its confirmations: do not pay twice.`;
const sentBack = (txid: string, height: string) =>
    `Done: the transfer ${txid} in block ${height} has sent the coins back.`;

const withdrawn = (note: Note, why: string): Note => ({
    ...note,
    todo: `This holds no longer: ${why}.`,
    state: 'withdrawn',
});
const done = (note: Note, how: string): Note => ({ ...note, todo: `Done: ${how}.`, state: 'done' });

/** Those of the notes that are not written yet, or no longer as they are written. */
export function changedNotes(written: Note[], notes: Note[]): Note[] {
    return notes.filter(note => {
        const before = written.find(({ key }) => key === note.key);
        return !(['what', 'todo', 'state'] as const).every(name => before?.[name] === note[name]);
    });
}

/** A transfer under the reference of an attempt that does not pay it, in a block. */
interface OddTransfer extends ReceivedTransfer {
    kind: keyof typeof KINDS;
}

/** The transfers that do not pay the attempt, by the keys of their notes; one in no block may never be in one. */
function oddTransfers(state: KnownState, transfers: ReceivedTransfer[]): Map<string, OddTransfer> {
    return new Map(
        transfers.flatMap((transfer): Array<[string, OddTransfer]> => {
            const kind = transfer.mismatch ?? (state === 'Cancelled' ? 'late' : null);
            return kind === null || !transfer.canonical
                ? []
                : [[`${TRANSFER}${transfer.txid}`, { ...transfer, kind }]];
        }),
    );
}

/** Whether the staff was told of a transfer that is still to be sent back. */
export const hasOpenTransfers = (notes: Note[]) =>
    notes.some(({ key, state }) => key.startsWith(TRANSFER) && state === 'open');

/** The senders of the transfers that are still to be sent back. */
export function openSenders(notes: Note[], transfers: ReceivedTransfer[]): string[] {
    const open = notes.filter(note => note.state === 'open').map(note => note.key);
    const senders = transfers
        .filter(({ txid }) => open.includes(`${TRANSFER}${txid}`))
        .map(({ sender }) => sender);
    return [...new Set(senders)];
}

/** The transfer with which all that is owed to its recipient was sent back; undefined if less was sent. */
function covering(sent: ReceivedTransfer[], owed: bigint): ReceivedTransfer | undefined {
    const height = ({ canonical, blockHeight }: ReceivedTransfer) =>
        canonical ? Number(blockHeight ?? 0) : Infinity;
    let left = owed;
    for (const transfer of [...sent].sort((one, other) => height(one) - height(other) || 0)) {
        left -= BigInt(transfer.amount);
        if (left <= 0n) return transfer;
    }
    return undefined;
}

/**
 * @description
 * The coins of base units, as `formatAmount` of the client writes them, which a CommonJS module can only import later.
 * What the staff sends is in the shop's records, whatever coins a node names.
 */
function coinsOf(units: string): string {
    return decimalOf(Number(units), 8).replace(/\.?0+$/, '');
}

function transferNote(
    key: string,
    { kind, txid, sender, amount }: OddTransfer,
    { order: { reference, confirmations }, unit }: Attempt,
    back: ReceivedTransfer | undefined,
): Note {
    const coins = `${coinsOf(amount)} ${unit}`;
    const what =
        `A transfer of ${coins} under the reference ${reference} does not pay this order: ` +
        `${KINDS[kind]} (from ${sender}, transfer ${txid}).`;
    if (back === undefined) {
        const todo =
            `Proposed refund, once it has ${confirmations} confirmations: ${coins} to ${sender}, ` +
            `with "svc wallet refund ${txid} --confirmations ${confirmations}".`;
        return { key, what, todo, state: 'open' };
    }
    return back.canonical && back.confirmations >= confirmations
        ? { key, what, todo: sentBack(back.txid, back.blockHeight ?? ''), state: 'done' }
        : { key, what, todo: onTheWay(back.txid), state: 'open' };
}

/**
 * @description
 * What the staff must know of transfers that do not pay the attempt, and what has become of those that it was told of:
 * a note is done when the coins are sent back to the sender, and withdrawn when a reorganisation has removed the
 * transfer.
 */
export function transferNotes(state: KnownState, attempt: Attempt, seen: Seen): Note[] {
    // A node that is catching up does not know which transfers the chain of the network has.
    if (seen.payment.node?.synced !== true) return [];
    const odd = oddTransfers(state, seen.transfers);
    const told = attempt.notes.filter(({ key }) => key.startsWith(TRANSFER));
    const fresh = [...odd.keys()].filter(key => told.every(note => note.key !== key));
    const left = Math.max(MOST_TRANSFERS - told.length, 0);
    const owed = new Map<string, bigint>();
    const notes = [...told.map(({ key }) => key), ...fresh.slice(0, left)].flatMap(key => {
        const before = told.find(note => note.key === key);
        const transfer = odd.get(key);
        if (transfer === undefined)
            return before?.state === 'open'
                ? [withdrawn(before, 'a reorganisation has removed the transfer, or made it the payment')]
                : [];
        const sum = (owed.get(transfer.sender) ?? 0n) + BigInt(transfer.amount);
        owed.set(transfer.sender, sum);
        if (before?.state === 'done') return [];
        return [
            transferNote(key, transfer, attempt, covering(seen.sentBack.get(transfer.sender) ?? [], sum)),
        ];
    });
    if (fresh.length <= left) return notes;
    const what = `There are further transfers under the reference ${attempt.order.reference}.`;
    const todo = 'The explorer of the node lists them. This is information, which does not change.';
    return [...notes, { key: 'more', what, todo, state: 'information' }];
}

/** The coins that arrived for an attempt in another amount than its own, pay nothing, and were not sent back. */
export function wrongAmounts(seen: Seen, notes: Note[]): string[] {
    const ended = notes.filter(({ state }) => state === 'done').map(({ key }) => key);
    const wrong = seen.transfers.filter(
        ({ canonical, mismatch, txid }) =>
            canonical && mismatch?.startsWith('too-') && !ended.includes(`${TRANSFER}${txid}`),
    );
    return wrong.map(({ amount }) => coinsOf(amount));
}

/** What counts of an order for the notes of its payment. */
export interface OrderView {
    state: string;
    /** Whether the payment is refunded. */
    refunded: boolean;
    /** Whether other payments, which are settled, cover the order. */
    paidOtherwise: boolean;
}

/** What has become of notes about a payment that is cancelled. */
function cancelledNotes(open: Note[], order: OrderView): Note[] {
    const over =
        order.state === 'Cancelled'
            ? 'the payment and the order are cancelled'
            : order.paidOtherwise
              ? 'the payment is cancelled, and the order is paid by another one'
              : null;
    return open.flatMap(note => {
        if (note.key.startsWith(UNDONE)) return [done(note, 'the payment is cancelled')];
        if (note.key === 'lost' || note.key === 'never-confirmed') {
            if (over !== null) return [done(note, over)];
            const todo = 'The payment is cancelled: ask the buyer for another payment, or cancel the order.';
            return note.key === 'lost' ? [{ ...note, todo }] : [];
        }
        if (note.key === 'order-cancelled' && !order.refunded)
            return [withdrawn(note, 'a reorganisation has undone the payment, and it is cancelled')];
        return [];
    });
}

/** What has become of notes about a payment in Vendure, whatever the node says. */
export function endedNotes(state: KnownState, notes: Note[], order: OrderView): Note[] {
    const open = notes.filter(note => note.state === 'open');
    if (state === 'Cancelled') return cancelledNotes(open, order);
    if (state !== 'Settled' || !order.refunded) return [];
    return open.filter(({ key }) => key === 'order-cancelled').map(note => done(note, 'it is refunded'));
}

/** What the staff must know of a change of the state, and what holds no longer after it. */
export function stateNotes(
    from: KnownState,
    to: KnownState | null,
    attempt: Attempt,
    seen: Seen,
    order: OrderView,
): Note[] {
    const { reference } = attempt.order;
    const open = attempt.notes.filter(({ state }) => state === 'open');
    if (to === 'Undone')
        return [
            {
                key: `undone-${attempt.turn}`,
                what: `A reorganisation has undone the payment ${reference}.`,
                todo:
                    'Ship nothing and refund nothing until it is settled again; most such payments are confirmed again ' +
                    'within some blocks.',
                state: 'open',
            },
        ];
    if (from === 'Undone' && to === 'Settled')
        return open
            .filter(({ key }) => /^undone-|^lost$/.test(key))
            .map(note =>
                withdrawn(
                    note,
                    note.key === 'lost'
                        ? 'the transfer came back, and the payment is confirmed again'
                        : 'the payment is confirmed again',
                ),
            );
    if (from === 'Undone' && to === null) {
        // A node that is catching up does not know which transfers the chain of the network has.
        if (seen.payment.node?.synced !== true) return [];
        if (seen.payment.state !== 'unpaid')
            return open
                .filter(({ key }) => key === 'lost')
                .map(note =>
                    withdrawn(note, 'the node knows the transfer again; wait for its confirmations'),
                );
        return [
            {
                key: 'lost',
                what: `The node no longer knows a transfer for the undone payment ${reference}.`,
                todo:
                    'If it does not come back, the sender may have spent the coins otherwise: ask the buyer for another ' +
                    'payment, or cancel the payment and the order.',
                state: 'open',
            },
        ];
    }
    if (to === 'Settled' && order.state === 'Cancelled')
        return [
            {
                key: 'order-cancelled',
                what: `The payment ${reference} is confirmed, but the order was cancelled.`,
                todo: 'Refund it, if no refund waits.',
                state: 'open',
            },
        ];
    if (from === 'Authorized' && to === 'Cancelled')
        return [
            {
                key: 'never-confirmed',
                what: `The payment ${reference} was seen, but never confirmed, and is cancelled.`,
                todo: 'Ask the buyer for another payment, or cancel the order, so that its stock is free again.',
                state: 'open',
            },
        ];
    return endedNotes(from, open, order);
}

const PAY_BACK = 'pay';
const UNDONE = 'undone';

/** What counts of a refund for its notes. */
export interface RefundView {
    id: ID;
    state: string;
    /** Whether a reorganisation has undone the payment that it returns. */
    undone: boolean;
}

/**
 * @description
 * What the staff must know of a refund: what to pay to whom, until it is paid, and that a reorganisation has undone
 * that, until it is confirmed again. `paid` is what the node says of the payment back.
 */
export function refundNotes(
    refund: RefundView,
    back: PaymentBack,
    paid: Pick<NodePayment, 'state' | 'txid' | 'blockHeight'>,
): Note[] {
    const { recipient, reference } = back.order;
    const coins = coinsOf(back.order.amount);
    const what = `Refund ${refund.id} returns ${coins} ${back.unit} to ${recipient}, the sender of the payment.`;
    const again: Note = {
        key: UNDONE,
        what: `A reorganisation has undone the payment of refund ${refund.id}, which Vendure keeps as settled.`,
        todo: 'Most such payments are confirmed again: do not pay twice, unless its wallet has given it up.',
        state: 'open',
    };
    const note = (todo: string, state: Note['state']): Note => ({ key: PAY_BACK, what, todo, state });
    if (back.settled) {
        const returned = note(sentBack(paid.txid ?? '', paid.blockHeight ?? ''), 'done');
        return UNDONE in back.notes ? [returned, withdrawn(again, 'it is confirmed again')] : [returned];
    }
    if (refund.state === 'Settled' && back.wasSettled) return [again];
    if (paid.state !== 'unpaid') return [note(onTheWay(paid.txid ?? ''), 'open')];
    if (refund.state === 'Settled') return [note('Done: it was settled in another way.', 'done')];
    if (refund.undone) {
        const todo =
            'Do not pay this refund now: a reorganisation of the chain has undone the payment that it returns.';
        return [note(todo, 'open')];
    }
    const send = `svc wallet send ${recipient} ${coins} --reference ${reference}`;
    const todo =
        `Pay ${coins} ${back.unit} back with "${send}", or with another wallet and the payment link in the details of the ` +
        'refund. If the coins may have come from an exchange, ask the buyer first. The refund is settled when this ' +
        'payment is confirmed.';
    return [note(todo, 'open')];
}
