import { Injectable } from '@nestjs/common';
import { Logger, Payment, Refund, TransactionalConnection } from '@vendure/core';
import { FindOptionsWhere, In, Like, MoreThan } from 'typeorm';

import { loggerCtx } from './constants';
import {
    ENDED,
    Feed,
    FOLLOWED,
    isBackDue,
    isDue,
    isEnd,
    isUnused,
    moved,
    News,
    newsOf,
    NOTED,
    OPEN,
    Place,
    reachOf,
} from './feed';
import { Places } from './places';
import { Client, FeedPage, svcPay } from './svc-pay';
import { sentenceOf, SvcPayService } from './svc-pay.service';
import { attemptOf, backOf, KnownState, PAY } from './terms';

/** Statuses of a node, or of a proxy before it, that has no time now. */
const BUSY = [429, 502, 503, 504];
/** Statuses with which a node refuses a cursor: it is none, or the blocks after it are not kept any more. */
const REFUSED = [400, 410];
const LIMIT = 1000;
/** Pages of a feed that are read in one run; the next one goes on. */
const PAGES = 20;
/** References in one question to the database. */
const AT_ONCE = 500;
/** A height that no chain has. */
const NEVER = 2n ** 53n - 1n;

const nameOf = ({ node, recipient }: Feed) => `${node}/${recipient}`;

/** A feed that is read in a run. */
interface Reading {
    feed: Feed;
    place: Place | null;
    /** Whether an order to the address is open. */
    isUsed: boolean;
    news: News;
    /** References of what could not be asked about, though the node has answered. */
    again: string[];
}

interface Question {
    reading: Reading;
    reference: string;
    ask: () => Promise<void>;
}

/**
 * @description
 * The scheduled check: reads the feed of each address to which orders are to be paid, and asks about the payments that
 * it concerns, and about those whose deadline passes or which gain confirmations. So what no event has told is found,
 * with a question or two, whatever the number of open orders.
 *
 * The place in a feed moves once all that it has told was asked about, so that an interruption at any moment skips
 * nothing; and only onto the place that this run began with, since of two workers one may have read another chain.
 */
@Injectable()
export class SvcPayCheck {
    constructor(
        private connection: TransactionalConnection,
        private service: SvcPayService,
        private places: Places,
    ) {}

    /** Asks about everything that may have changed without an event having come. */
    async checkAll(): Promise<{ asked: number; failed: number }> {
        const away = new Set<string>();
        let failed = 0;
        const fails = async (node: string, what: string, error: unknown) => {
            failed += 1;
            if (await isAway(error)) away.add(node);
            const { SvcPayError } = await svcPay();
            const stack = error instanceof Error && !(error instanceof SvcPayError) ? error.stack : undefined;
            Logger.error(`${what}: ${sentenceOf(error)}`, loggerCtx, stack);
        };
        const readings = new Map<string, Reading>();
        for (const { feed, place, isUsed } of await this.feeds()) {
            if (away.has(feed.node)) continue;
            try {
                const news = await this.read(feed, place);
                if (news !== null) readings.set(nameOf(feed), { feed, place, isUsed, news, again: [] });
            } catch (error) {
                await fails(feed.node, `the payments to ${feed.recipient}`, error);
            }
        }
        const questions = [...(await this.ofPayments(readings)), ...(await this.ofRefunds(readings))];
        for (const { reading, reference, ask } of questions) {
            const { node } = reading.feed;
            if (away.has(node)) continue;
            try {
                await ask();
            } catch (error) {
                // What is wrong with one of them must not keep the others from being asked about.
                await fails(node, reference, error);
                reading.again.push(reference);
            }
        }
        for (const reading of readings.values()) if (!away.has(reading.feed.node)) await this.move(reading);
        return { asked: questions.length, failed };
    }

    /** The feeds that are read: those of open orders and refunds, and for a while those in which none is open any more. */
    private async feeds(): Promise<Array<Pick<Reading, 'feed' | 'place' | 'isUsed'>>> {
        const { rawConnection } = this.connection;
        const transactionId = Like(`${PAY}%`);
        const payments = await rawConnection.getRepository(Payment).find({
            select: ['id', 'metadata'],
            where: [
                { transactionId, state: In([...OPEN]) },
                { transactionId, refunds: { state: 'Pending' } },
            ],
        });
        const used = new Map<string, Feed>();
        for (const payment of payments) {
            const feed = feedOf(payment);
            if (feed !== undefined) used.set(nameOf(feed), feed);
        }
        const places = new Map((await this.places.all()).map(place => [nameOf(place), place]));
        for (const [name, place] of places)
            if (!used.has(name) && isUnused(place, Date.now())) {
                await this.places.remove(place);
                places.delete(name);
            }
        // A node that the configuration does not have any more is missed only by an order.
        const left = [...places].filter(([name, { node }]) => used.has(name) || this.service.node(node));
        const feeds = new Map<string, Feed>([...left, ...used]);
        return [...feeds].map(([name, { node, recipient }]) => ({
            feed: { node, recipient },
            place: places.get(name) ?? null,
            isUsed: used.has(name),
        }));
    }

    /** What a feed tells after a place; null while the node catches up, because its chain may not be the network's. */
    private async read(feed: Feed, place: Place | null): Promise<News | null> {
        const { ApiError } = await svcPay();
        const client = await this.service.client(feed.node);
        try {
            return await this.pages(client, feed, place);
        } catch (error) {
            const isRefused = error instanceof ApiError && REFUSED.includes(error.status);
            if (place === null || !isRefused) throw error;
            Logger.warn(
                `${nameOf(feed)}: the node does not go on with the feed, so that all payments of the last days are ` +
                    `asked about: ${error.message}`,
                loggerCtx,
            );
            const news = await this.pages(client, feed, null);
            return news && { ...news, told: new Set(place.again) };
        }
    }

    private async pages(client: Client, { recipient }: Feed, place: Place | null): Promise<News | null> {
        const pages: FeedPage[] = [];
        for (let [after, tip] = [place?.cursor ?? null, place?.tip ?? 0]; ; ) {
            // Without a place everything is asked about, and the feed begins with what comes from now on. With one, a
            // node that is behind would tell a rewind to its own tip.
            const from = after === null ? { sinceHeight: NEVER } : { after, minHeight: BigInt(tip) };
            const page = await client.feed(recipient, { ...from, limit: LIMIT });
            if (!page.node.synced) {
                Logger.info(`${recipient}: the node is catching up; its feed is read later`, loggerCtx);
                return null;
            }
            pages.push(page);
            if (pages.length === PAGES || isEnd(place?.cursor ?? null, pages))
                return newsOf(place, pages, page);
            [after, tip] = [page.next, Number(page.tip.height)];
        }
    }

    /** The payments that are to be asked about. */
    private async ofPayments(readings: Map<string, Reading>): Promise<Question[]> {
        const now = Date.now();
        const since = (time: number) => MoreThan(new Date(now - time));
        const ours = Like(`${PAY}%`);
        const reach = Math.max(
            0,
            ...[...readings.values()].map(({ place, news }) => reachOf(place, news, now)),
        );
        const where: Array<FindOptionsWhere<Payment>> = [
            { transactionId: ours, state: In([...OPEN]) },
            { transactionId: ours, state: In([...ENDED]), updatedAt: since(reach) },
            {
                transactionId: ours,
                state: In([...ENDED]),
                createdAt: since(NOTED),
                metadata: Like('%"state":"open"%'),
            },
        ];
        const told = [...new Set([...readings.values()].flatMap(({ news }) => [...news.told]))];
        const ofAttempts = told.filter(reference => reference.startsWith(PAY));
        for (let first = 0; first < ofAttempts.length; first += AT_ONCE)
            where.push({ transactionId: In(ofAttempts.slice(first, first + AT_ONCE)) });
        const found = new Map<string, Payment>();
        for (const each of where)
            for (const payment of await this.connection.rawConnection
                .getRepository(Payment)
                .find({ select: ['id', 'state', 'metadata'], where: each }))
                found.set(String(payment.id), payment);
        return [...found.values()].flatMap(payment => {
            const attempt = attemptOf(payment);
            const reading = readingOf(readings, payment);
            if (attempt === undefined || reading === undefined) return [];
            const { news } = reading;
            if (!isDue(payment.state as KnownState, attempt, news, now)) return [];
            const ask = () => this.service.check(payment.id, news.tip);
            return [{ reading, reference: attempt.order.reference, ask }];
        });
    }

    /** The refunds that are to be asked about, or to be prepared. */
    private async ofRefunds(readings: Map<string, Reading>): Promise<Question[]> {
        const now = Date.now();
        const ours = { transactionId: Like(`${PAY}%`) };
        const refunds = await this.connection.rawConnection.getRepository(Refund).find({
            where: [
                { payment: ours, state: 'Pending' },
                { payment: ours, state: 'Settled', updatedAt: MoreThan(new Date(now - FOLLOWED)) },
            ],
            relations: ['payment', 'payment.order'],
        });
        return refunds.flatMap(refund => {
            const back = backOf(refund);
            const reading = readingOf(readings, refund.payment);
            if (reading === undefined) return [];
            if (back === undefined) {
                if (refund.state === 'Settled') return [];
                const ask = () => this.service.prepareRefunds(refund.payment.order.id);
                return [{ reading, reference: `refund ${refund.id}`, ask }];
            }
            const { news } = reading;
            if (!isBackDue(refund.state, back, news, now)) return [];
            const ask = () => this.service.checkRefund(refund.id, news.tip);
            return [{ reading, reference: back.order.reference, ask }];
        });
    }

    private async move({ feed, place, news, again, isUsed }: Reading): Promise<void> {
        const after = moved(feed, place, news, { again, isUsed, now: Date.now() });
        if (after !== place && !(await this.places.write(after)))
            Logger.info(`${nameOf(feed)}: another worker has read the feed meanwhile`, loggerCtx);
    }
}

/** Whether nothing else can be asked from the node either. */
async function isAway(error: unknown): Promise<boolean> {
    const { ApiError, NodeUnreachable } = await svcPay();
    const isBusy = error instanceof ApiError && BUSY.includes(error.status);
    return isBusy || error instanceof NodeUnreachable;
}

function feedOf(payment: Payment): Feed | undefined {
    const attempt = attemptOf(payment);
    return attempt && { node: attempt.node, recipient: attempt.order.recipient };
}

function readingOf(readings: Map<string, Reading>, payment: Payment): Reading | undefined {
    const feed = feedOf(payment);
    return feed && readings.get(nameOf(feed));
}
