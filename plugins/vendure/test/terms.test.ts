import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
    coinsBack,
    decimalOf,
    KnownState,
    MOST_TRANSFERS,
    newReference,
    nextState,
    PAY,
    refundedBefore,
    REFUND,
    refusal,
    Seen,
    stateNotes,
    transferNotes,
} from '../src/terms';
import type { Attempt } from '../src';

const seen = (
    state: string,
    given: { settled?: boolean; expired?: boolean; synced?: boolean } = {},
): Seen => ({
    payment: { state, node: { synced: given.synced ?? true } } as Seen['payment'],
    settled: given.settled ?? false,
    expired: given.expired ?? false,
    transfers: [],
});

test('the next state follows from what the node says', () => {
    const cases: Array<[KnownState, Seen, KnownState | null]> = [
        ['AwaitingTransfer', seen('unpaid'), null],
        ['AwaitingTransfer', seen('pending'), 'Authorized'],
        ['AwaitingTransfer', seen('confirming'), 'Authorized'],
        ['AwaitingTransfer', seen('confirmed', { settled: true }), 'Settled'],
        ['AwaitingTransfer', seen('unpaid', { expired: true }), 'Cancelled'],
        ['AwaitingTransfer', seen('confirmed', { settled: true, expired: true }), 'Cancelled'],
        ['Authorized', seen('pending'), null],
        ['Authorized', seen('unpaid'), null],
        ['Authorized', seen('confirmed', { synced: false }), null],
        ['Authorized', seen('confirmed', { settled: true }), 'Settled'],
        ['Authorized', seen('pending', { expired: true }), 'Cancelled'],
        ['Settled', seen('confirmed', { settled: true }), null],
        ['Settled', seen('confirmed', { synced: false }), null],
        ['Settled', seen('pending'), 'Undone'],
        ['Settled', seen('confirming'), 'Undone'],
        ['Settled', seen('unpaid', { synced: false }), null],
        ['Undone', seen('pending'), null],
        ['Undone', seen('confirmed', { settled: true }), 'Settled'],
        ['Cancelled', seen('confirmed', { settled: true }), null],
    ];
    for (const [from, told, to] of cases)
        assert.equal(nextState(from, told), to, `${from} ${told.payment.state}`);
});

test('by hand a payment becomes only what the node has said', () => {
    assert.match(refusal('Settled', { seen: 'pending', settled: false }) ?? '', /pending/);
    assert.equal(refusal('Settled', { seen: 'confirmed', settled: true }), null);
    assert.match(refusal('Authorized', { seen: 'unpaid', settled: false }) ?? '', /unpaid/);
    assert.equal(refusal('Authorized', { seen: 'pending', settled: false }), null);
    assert.match(refusal('Undone', { seen: 'confirmed', settled: true }) ?? '', /confirmed/);
    assert.equal(refusal('Undone', { seen: 'pending', settled: false }), null);
    assert.equal(refusal('Cancelled', { seen: 'pending', settled: false }), null);
});

test('refunds return exactly the coins of the payment', () => {
    assert.equal(coinsBack(10n, 3, 0, 3), 10n);
    for (const parts of [
        [1, 1, 1],
        [1, 2],
        [2, 1],
    ]) {
        let [before, sum] = [0, 0n];
        for (const part of parts) {
            sum += coinsBack(10n, 3, before, part);
            before += part;
        }
        assert.equal(sum, 10n);
    }
});

test('amounts and references have the form that the node takes', () => {
    assert.deepEqual(
        [decimalOf(1250, 2), decimalOf(5, 2), decimalOf(100, 0), decimalOf(1, 3)],
        ['12.50', '0.05', '100', '0.001'],
    );
    assert.match(newReference(REFUND), /^vendure\.refund\.[0-9a-f]{16}$/);
    assert.notEqual(newReference(PAY), newReference(PAY));
});

test('a refund counts what is settled, and what was to be paid back, but not what failed', () => {
    const refund = (id: number, state: string, metadata: object = {}) => ({
        id,
        state,
        total: 100,
        metadata,
    });
    const svc = { svc: {} };
    assert.equal(refundedBefore(1, [refund(1, 'Pending', svc)]), 0);
    assert.equal(refundedBefore(1, [refund(2, 'Pending')]), 0);
    assert.equal(refundedBefore(1, [refund(2, 'Pending', svc), refund(3, 'Settled')]), 200);
    assert.equal(refundedBefore(1, [refund(2, 'Failed', svc)]), 0);
});

const attempt = (noted: string[] = []) =>
    ({ order: { reference: 'vendure.pay.1', confirmations: 2 }, noted, turn: 7 }) as unknown as Attempt;

test('the staff is told of a number of transfers, and then that there are more', () => {
    const transfers = Array.from({ length: MOST_TRANSFERS + 2 }, (_, index) => ({
        txid: String(index),
        mismatch: 'too-little',
        canonical: true,
    }));
    const told = (noted: string[], count: number) =>
        transferNotes('Authorized', attempt(noted), {
            ...seen('pending'),
            transfers: transfers.slice(0, count) as unknown as Seen['transfers'],
        }).map(note => note.key);
    assert.deepEqual(told([], 2), ['too-little:0', 'too-little:1']);
    assert.deepEqual(told(['too-little:0', 'undone-3'], 2), ['too-little:1']);
    assert.equal(told([], MOST_TRANSFERS).length, MOST_TRANSFERS);
    const all = told([], MOST_TRANSFERS + 2);
    assert.deepEqual([all.length, all.at(-1)], [MOST_TRANSFERS + 1, 'more']);
});

test('the staff is told of what Vendure shows nobody', () => {
    const keys = (from: KnownState, to: KnownState | null, state: string, order = 'PaymentSettled') =>
        stateNotes(from, to, attempt(), seen(state), { state: order }).map(note => note.key);
    assert.deepEqual(keys('Settled', 'Undone', 'pending'), ['undone-7']);
    assert.deepEqual(keys('Undone', null, 'pending'), []);
    assert.deepEqual(keys('Undone', null, 'unpaid'), ['lost']);
    assert.deepEqual(keys('Authorized', 'Settled', 'confirmed'), []);
    assert.deepEqual(keys('Authorized', 'Settled', 'confirmed', 'Cancelled'), ['order-cancelled']);
    // It was settled before, and may be refunded already.
    assert.deepEqual(keys('Undone', 'Settled', 'confirmed', 'Cancelled'), []);
    assert.deepEqual(keys('Authorized', 'Cancelled', 'unpaid'), ['never-confirmed']);
});
