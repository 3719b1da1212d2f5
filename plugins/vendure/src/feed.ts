import type { FeedPage } from './svc-pay';
import { hasOpenTransfers, KnownState } from './terms';
import type { Attempt, PaymentBack } from './types';

// What a feed tells, and what is to be asked about because of it: no input and output.

/** The payments to an address, as one of the nodes tells them. */
export interface Feed {
    node: string;
    recipient: string;
}

/** Up to where a feed was followed: all that it has told was asked about, but for what is to be asked again. */
export interface Place extends Feed {
    /** Counts the changes: a place is only written in the stead of the one that it follows. */
    turn: number;
    /** `next` of the last page. */
    cursor: string;
    /** The height of the tip of that page. */
    tip: number;
    /** The references about which nothing could be learned, though the node has answered. */
    again: string[];
    /** When an order to this address was open last, in Unix milliseconds and to within an hour. */
    usedAt: number;
}

/** What a feed tells after a place. */
export interface News {
    /** Whether there was no place, or the node has refused it: then everything is to be asked about. */
    isFirst: boolean;
    /** The references of payments in blocks, and those to be asked about again. */
    told: Set<string>;
    /** What a node has said about blocks above this height may hold no longer. */
    above: number;
    /** The transfers that wait in the mempool, by reference; there may be more than are listed. */
    waiting: Map<string, FeedPage['pending']>;
    cursor: string;
    tip: number;
}

/** The states of payments on which somebody waits, and of those that have ended. */
export const OPEN: readonly KnownState[] = ['AwaitingTransfer', 'Authorized', 'Undone'];
export const ENDED: readonly KnownState[] = ['Settled', 'Cancelled'];
/** The least pause between two questions about what no feed tells; it grows to an eighth of the age. */
const SELDOM = 600_000;
const HOUR = 3_600_000;
const DAY = 24 * HOUR;
/** For how long a reorganisation may still change what has ended. */
export const FOLLOWED = 8 * DAY;
/** For how long an open note about something that has ended is a reason to ask. */
export const NOTED = 30 * DAY;
/** For how long a feed is read in which no order is open. */
const UNUSED = 30 * DAY;

/** Whether the feed has told everything with the last of these pages, of which the first one was asked for `after`. */
export function isEnd(after: string | null, pages: readonly FeedPage[]): boolean {
    const [before, last] = [pages.at(-2), pages.at(-1)];
    if (last === undefined || last.entries.length > 0) return false;
    const asked = before === undefined ? after : before.next;
    // Waiting transfers come and go, and the cursor with them.
    return (
        asked === null ||
        last.next === asked ||
        (before?.entries.length === 0 && before.tip.hash === last.tip.hash)
    );
}

/** What the pages say that follow the place, if there is one. */
export function newsOf(place: Place | null, pages: readonly FeedPage[], last: FeedPage): News {
    const news = { told: new Set(place?.again), above: place?.tip ?? -1 };
    for (const entry of pages.flatMap(({ entries }) => entries))
        if (entry.type === 'rewind') news.above = Math.min(news.above, Number(entry.height));
        else if (entry.reference !== null) news.told.add(entry.reference);
    const waiting: News['waiting'] = new Map();
    for (const transfer of last.pending)
        if (transfer.reference !== null)
            waiting.set(transfer.reference, [...(waiting.get(transfer.reference) ?? []), transfer]);
    return { ...news, isFirst: place === null, waiting, cursor: last.next, tip: Number(last.tip.height) };
}

/** The place after the news; the one before if there is nothing to write. */
export function moved(
    feed: Feed,
    place: Place | null,
    news: News,
    { again, isUsed, now }: { again: string[]; isUsed: boolean; now: number },
): Place {
    const { cursor, tip } = news;
    const usedAt = place === null || (isUsed && now - place.usedAt > HOUR) ? now : place.usedAt;
    const after: Place = { ...feed, turn: (place?.turn ?? 0) + 1, cursor, tip, again, usedAt };
    const isSame = place?.cursor === cursor && place.usedAt === usedAt && place.again.join() === again.join();
    return isSame ? place : after;
}

/** Whether the feed is read no longer: no order to the address was open for a long time. */
export const isUnused = ({ usedAt }: Place, now: number) => now - usedAt > UNUSED;

/** For how long ago a change of an ended payment counts, in milliseconds: it may be due since then. */
export function reachOf(place: Place | null, news: News, now: number): number {
    // A day is more than clocks and time zones of a database and its clients may differ.
    const isQuiet = place !== null && news.above === place.tip && now - place.usedAt < DAY / 2;
    return isQuiet ? DAY : FOLLOWED;
}

const concerns = ({ isFirst, told, above }: News, reference: string, top: number | undefined) =>
    isFirst || told.has(reference) || (top ?? -1) > above;

const isTime = ({ begunAt, askedAt }: { begunAt: number; askedAt: number }, now: number) =>
    now - askedAt > Math.max(SELDOM, (now - begunAt) / 8);

/** Whether the node is to be asked about a payment. */
export function isDue(state: KnownState, attempt: Attempt, news: News, now: number): boolean {
    const { order, seen, settled, confirmations, top, txid, notes, begunAt, payUntil } = attempt;
    if (concerns(news, order.reference, top)) return true;
    if (ENDED.includes(state)) {
        // What the staff does about a note is in no feed of the address, or was done while nothing noticed it.
        const isNoted = notes.some(note => note.state === 'open') && now - begunAt < NOTED;
        return (state === 'Settled' && !settled) || (isNoted && isTime(attempt, now));
    }
    // Coins are sent back from the address, which its feed does not tell.
    if (hasOpenTransfers(notes) || (state === 'AwaitingTransfer' && now > payUntil)) return true;
    const waiting = news.waiting.get(order.reference) ?? [];
    switch (seen) {
        case 'unpaid':
            // Only the node knows when it gives up a payment that was seen.
            return (
                waiting.some(({ amount }) => amount === order.amount) ||
                (state !== 'AwaitingTransfer' && isTime(attempt, now))
            );
        case 'pending':
            return !waiting.some(each => each.txid === txid);
        case 'confirming':
            return news.tip + 1 - (top ?? -1) !== confirmations;
        case 'confirmed':
            // The node that has said so was catching up.
            return true;
    }
}

/** Whether the node is to be asked about a payment back; only its own address would have it in a feed. */
export function isBackDue(state: string, back: PaymentBack, news: News, now: number): boolean {
    if (state === 'Pending' || concerns(news, back.order.reference, back.top)) return true;
    return !back.settled && isTime(back, now);
}
