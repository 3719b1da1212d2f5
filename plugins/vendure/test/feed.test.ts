import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Attempt, PaymentBack } from '../src';
import { isBackDue, isDue, isEnd, isUnused, moved, News, newsOf, Place, reachOf } from '../src/feed';
import type { FeedPage } from '../src/svc-pay';
import type { KnownState } from '../src/terms';

const NOW = 1_800_000_000_000;
const HOUR = 3_600_000;
const DAY = 24 * HOUR;

const feed = { node: 'main', recipient: 'svc1' };
const place: Place = { ...feed, turn: 3, cursor: 'c', tip: 100, again: [], usedAt: NOW };

function page(
    next: string,
    given: { entries?: object[]; pending?: object[]; tip?: number; hash?: string } = {},
): FeedPage {
    const tip = { height: String(given.tip ?? 100), hash: given.hash ?? 'aa' };
    const { entries = [], pending = [] } = given;
    return { entries, pending, next, tip, node: { ...tip, synced: true } } as FeedPage;
}

const paid = (reference: string | null) => ({ type: 'payment', reference });
const rewind = (height: number) => ({ type: 'rewind', height: String(height) });

const news = (...pages: FeedPage[]): News => newsOf(place, pages, pages.at(-1) ?? page('c'));
const quiet = news(page('c'));

const attempt = (given: Partial<Attempt> = {}): Attempt =>
    ({
        order: { reference: 'ref', amount: '5' },
        seen: 'unpaid',
        settled: false,
        confirmations: 0,
        notes: [],
        payUntil: NOW + HOUR,
        begunAt: NOW - HOUR,
        askedAt: NOW - HOUR / 2,
        ...given,
    }) as Attempt;

test('a feed has told everything when it begins where it ended, or twice has nothing of one chain', () => {
    assert.ok(isEnd('c', [page('c')]));
    assert.ok(!isEnd('c', [page('d')]));
    assert.ok(isEnd('c', [page('d'), page('d')]));
    assert.ok(isEnd('c', [page('d'), page('e')]));
    assert.ok(!isEnd('c', [page('d'), page('e', { hash: 'bb' })]));
    assert.ok(!isEnd('c', [page('d', { entries: [paid('ref')] }), page('e')]));
    assert.ok(!isEnd('c', [page('c', { entries: [paid('ref')] })]));
    assert.ok(isEnd(null, [page('d')]));
});

test('the news are what all pages tell, and what waits now', () => {
    const waiting = { reference: 'late', txid: 't', amount: '5' };
    const found = newsOf(
        { ...place, again: ['held'] },
        [
            page('d', { entries: [rewind(97), paid('one'), paid(null)], pending: [{ reference: 'gone' }] }),
            page('e', { entries: [rewind(98), paid('two')] }),
        ],
        page('f', { pending: [waiting, { ...waiting, txid: 'u' }, { reference: null }], tip: 104 }),
    );
    assert.deepEqual([...found.told].sort(), ['held', 'one', 'two']);
    assert.deepEqual([found.above, found.tip, found.cursor, found.isFirst], [97, 104, 'f', false]);
    assert.deepEqual([...found.waiting.keys()], ['late']);
    assert.equal(found.waiting.get('late')?.length, 2);
    assert.equal(newsOf(null, [page('c')], page('c')).isFirst, true);
});

test('a payment is asked about if the news concern it', () => {
    const waits = news(page('c', { pending: [{ reference: 'ref', txid: 't', amount: '5' }] }));
    const tells = news(page('d', { entries: [paid('ref')] }));
    const undoes = news(page('d', { entries: [rewind(97)] }));
    const deeper = news(page('d', { tip: 101 }));
    const inBlock = { seen: 'confirming', top: 99, confirmations: 2 } as const;
    const settled = { seen: 'confirmed', settled: true, top: 98, confirmations: 3 } as const;
    const open = (key: string): Partial<Attempt> => ({
        notes: [{ key, what: '', todo: '', state: 'open', entry: 1 }],
    });
    const [noted, other] = [open('transfer:t'), open('lost')];
    const cases: Array<[KnownState, Partial<Attempt>, News, boolean]> = [
        ['AwaitingTransfer', {}, quiet, false],
        ['AwaitingTransfer', {}, tells, true],
        ['AwaitingTransfer', {}, waits, true],
        ['AwaitingTransfer', {}, undoes, false],
        ['AwaitingTransfer', {}, newsOf(null, [], page('c')), true],
        ['AwaitingTransfer', { order: { reference: 'ref', amount: '6' } as never }, waits, false],
        ['AwaitingTransfer', { payUntil: NOW - 1 }, quiet, true],
        ['AwaitingTransfer', noted, quiet, true],
        ['Authorized', { seen: 'pending', txid: 't' }, waits, false],
        ['Authorized', { seen: 'pending', txid: 't' }, quiet, true],
        ['Authorized', { askedAt: NOW }, quiet, false],
        ['Authorized', {}, quiet, true],
        ['Authorized', inBlock, quiet, false],
        ['Authorized', inBlock, deeper, true],
        ['Authorized', inBlock, undoes, true],
        ['Authorized', { seen: 'confirmed', top: 98, confirmations: 3 }, quiet, true],
        ['Undone', { askedAt: NOW }, quiet, false],
        ['Undone', {}, quiet, true],
        ['Undone', { askedAt: NOW }, waits, true],
        ['Undone', { seen: 'pending', txid: 't' }, quiet, true],
        ['Undone', inBlock, deeper, true],
        ['Settled', settled, quiet, false],
        ['Settled', settled, deeper, false],
        ['Settled', settled, undoes, true],
        // An event has told of a block that the feed had not reached.
        ['Settled', { ...settled, top: 101 }, deeper, true],
        ['Settled', { ...settled, settled: false }, quiet, true],
        ['Cancelled', {}, quiet, false],
        ['Cancelled', {}, waits, false],
        ['Cancelled', {}, tells, true],
        ['Cancelled', { top: 99 }, undoes, true],
        ['Cancelled', other, quiet, true],
        ['Cancelled', { ...other, askedAt: NOW - 60_000 }, quiet, false],
        ['Cancelled', { ...other, begunAt: NOW - 29 * DAY, askedAt: NOW - 4 * DAY }, quiet, true],
        ['Cancelled', { ...other, begunAt: NOW - 29 * DAY, askedAt: NOW - 3 * DAY }, quiet, false],
        ['Cancelled', { ...other, begunAt: NOW - 31 * DAY, askedAt: 0 }, quiet, false],
    ];
    for (const [state, given, told, due] of cases)
        assert.equal(isDue(state, attempt(given), told, NOW), due, `${state} ${JSON.stringify(given)}`);
});

test('a payment back is asked about until it is there, and when a reorganisation may have undone it', () => {
    const back = (given: object) =>
        ({
            order: { reference: 'back' },
            settled: false,
            begunAt: NOW - HOUR,
            askedAt: NOW - 1000,
            ...given,
        }) as PaymentBack;
    const undoes = news(page('d', { entries: [rewind(97)] }));
    assert.ok(isBackDue('Pending', back({}), quiet, NOW));
    assert.ok(!isBackDue('Settled', back({ settled: true, top: 98 }), quiet, NOW));
    assert.ok(isBackDue('Settled', back({ settled: true, top: 98 }), undoes, NOW));
    assert.ok(!isBackDue('Settled', back({ settled: true, top: 97 }), undoes, NOW));
    assert.ok(!isBackDue('Settled', back({}), quiet, NOW));
    assert.ok(isBackDue('Settled', back({ askedAt: NOW - HOUR }), quiet, NOW));
});

test('the place moves with the news, and is not written without any', () => {
    const now = NOW + HOUR / 2;
    const same = moved(feed, place, quiet, { again: [], isUsed: true, now });
    assert.equal(same, place);
    assert.deepEqual(moved(feed, place, quiet, { again: ['ref'], isUsed: true, now }), {
        ...place,
        turn: 4,
        again: ['ref'],
    });
    const later = NOW + 2 * HOUR;
    assert.equal(moved(feed, place, quiet, { again: [], isUsed: true, now: later }).usedAt, later);
    assert.equal(moved(feed, place, quiet, { again: [], isUsed: false, now: later }), place);
    const told = news(page('d', { tip: 101 }));
    assert.deepEqual(moved(feed, null, told, { again: [], isUsed: true, now: NOW }), {
        ...place,
        turn: 1,
        cursor: 'd',
        tip: 101,
    });
    assert.deepEqual([isUnused(place, NOW + 29 * DAY), isUnused(place, NOW + 31 * DAY)], [false, true]);
});

test('what has ended is looked at further back if the feed has begun anew, or was not read for long', () => {
    assert.equal(reachOf(place, quiet, NOW), DAY);
    assert.equal(reachOf(place, news(page('d', { entries: [rewind(97)] })), NOW), 8 * DAY);
    assert.equal(reachOf(place, quiet, NOW + DAY), 8 * DAY);
    assert.equal(reachOf(null, newsOf(null, [], page('c')), NOW), 8 * DAY);
});
