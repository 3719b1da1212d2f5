import type { Payment } from '@vendure/core';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
    attemptOf,
    changedNotes,
    coinsBack,
    decimalOf,
    KnownState,
    MOST_TRANSFERS,
    newReference,
    nextState,
    PAY,
    refundedBefore,
    REFUND,
    refundNotes,
    refusal,
    Seen,
    stateNotes,
    transferNotes,
    wrongAmounts,
} from '../src/terms';
import type { Attempt, Note, PaymentBack, WrittenNote } from '../src';
import type { ReceivedTransfer, State } from '../src/svc-pay';

const seen = (
    state: string,
    given: { settled?: boolean; expired?: boolean; synced?: boolean } = {},
): Seen => ({
    payment: { state, node: { synced: given.synced ?? true } } as Seen['payment'],
    settled: given.settled ?? false,
    expired: given.expired ?? false,
    transfers: [],
    sentBack: new Map(),
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

const written = (key: string, state: Note['state'] = 'open') => ({
    key,
    what: '',
    todo: '',
    state,
    entry: 1,
});
const attempt = (...notes: WrittenNote[]) =>
    ({
        order: { reference: 'vendure.pay.1', confirmations: 2 },
        unit: 'Token',
        notes,
        turn: 7,
    }) as unknown as Attempt;
const transfer = (txid: string, more: object = {}) =>
    ({
        txid,
        sender: 'buyer',
        amount: '10',
        amountSvc: '999',
        mismatch: 'too-little',
        canonical: true,
        confirmations: 2,
        blockHeight: '5',
        ...more,
    }) as unknown as ReceivedTransfer;

test('an attempt of a version whose notes had no states has none', () => {
    const of = (metadata: object) => attemptOf({ metadata } as Payment);
    assert.deepEqual(of({ svc: { noted: ['lost'] } })?.notes, []);
    assert.equal(of({ svc: { noted: ['lost'] } })?.unit, 'SVC');
    assert.deepEqual(of({ svc: attempt(written('lost')) })?.notes, [written('lost')]);
    assert.equal(of({}), undefined);
});

test('the staff is told of a number of transfers, and then that there are more', () => {
    const transfers = Array.from({ length: MOST_TRANSFERS + 2 }, (_, index) => transfer(String(index)));
    const told = (count: number, ...notes: WrittenNote[]) =>
        transferNotes('Authorized', attempt(...notes), {
            ...seen('pending'),
            transfers: transfers.slice(0, count),
        }).map(note => note.key);
    assert.deepEqual(told(2), ['transfer:0', 'transfer:1']);
    assert.deepEqual(told(2, written('transfer:1'), written('undone-3')), ['transfer:1', 'transfer:0']);
    assert.equal(told(MOST_TRANSFERS).length, MOST_TRANSFERS);
    const all = told(MOST_TRANSFERS + 2);
    assert.deepEqual([all.length, all.at(-1)], [MOST_TRANSFERS + 1, 'more']);
});

test('a note about a transfer ends with the refund that covers it', () => {
    const states = (sentBack: ReceivedTransfer[], notes = [written('transfer:a'), written('transfer:b')]) =>
        transferNotes('Authorized', attempt(...notes), {
            ...seen('pending'),
            transfers: [transfer('a'), transfer('b', { amount: '5' })],
            sentBack: new Map([['buyer', sentBack]]),
        }).map(({ state, todo }) => `${state} ${/transfer (\w+)/.exec(todo)?.[1] ?? ''}`.trim());
    assert.deepEqual(states([]), ['open', 'open']);
    assert.deepEqual(states([transfer('r', { amount: '9' })]), ['open', 'open']);
    assert.deepEqual(states([transfer('r', { amount: '10' })]), ['done r', 'open']);
    assert.deepEqual(states([transfer('r', { amount: '15' })]), ['done r', 'done r']);
    assert.deepEqual(states([transfer('r', { confirmations: 1 })]), ['open r', 'open']);
    const waits = transfer('w', { canonical: false, confirmations: 0, blockHeight: undefined, amount: '5' });
    assert.deepEqual(states([waits, transfer('r')]), ['done r', 'open w']);
    // What is done stays done, and counts for what is owed to the same sender.
    assert.deepEqual(states([transfer('r')], [written('transfer:a', 'done'), written('transfer:b')]), [
        'open',
    ]);
});

test('a note is withdrawn when its transfer has gone, unless the node is catching up', () => {
    const notes = [written('transfer:a'), written('transfer:b', 'done')];
    const states = (synced: boolean, transfers: ReceivedTransfer[]) =>
        transferNotes('Authorized', attempt(...notes), { ...seen('pending', { synced }), transfers }).map(
            note => `${note.key} ${note.state}`,
        );
    assert.deepEqual(states(true, []), ['transfer:a withdrawn']);
    assert.deepEqual(states(true, [transfer('a', { canonical: false })]), ['transfer:a withdrawn']);
    assert.deepEqual(states(false, []), []);
});

test('a note is written again only when it says something else', () => {
    const note: Note = { key: 'lost', what: 'a', todo: 'b', state: 'open' };
    assert.deepEqual(changedNotes([], [note]), [note]);
    assert.deepEqual(changedNotes([note], [{ ...note }]), []);
    const again = { ...note, state: 'withdrawn' } as const;
    assert.deepEqual(changedNotes([note], [again]), [again]);
});

test('coins for the staff are those of the base units, whatever the node names', () => {
    for (const [amount, coins] of [
        ['10', '0.0000001'],
        ['100000000', '1'],
        ['12050000000', '120.5'],
        ['9007199254740991', '90071992.54740991'],
    ]) {
        const seenThen = { payment: { node: { synced: true } }, sentBack: new Map() };
        const transfers = [transfer('a', { amount })];
        const [note] = transferNotes('Authorized', attempt(), { ...seenThen, transfers } as never);
        assert.match(note?.what ?? '', new RegExp(`^A transfer of ${coins} Token`));
        assert.match(note?.todo ?? '', new RegExp(`: ${coins} Token to buyer`));
        assert.deepEqual(wrongAmounts({ ...seenThen, transfers } as never, []), [coins]);
    }
});

test('the notes of a refund say what to pay, and when not to pay it', () => {
    const back = (more: object = {}) =>
        ({
            order: { recipient: 'buyer', reference: 'vendure.refund.1', amount: '1000000000' },
            unit: 'Token',
            settled: false,
            wasSettled: false,
            notes: {},
            ...more,
        }) as unknown as PaymentBack;
    const paid = (state: State) => ({ state, amountSvc: '500', txid: 'ab', blockHeight: '7' });
    const told = (state: string, given: PaymentBack, seen: State, undone = false) =>
        refundNotes({ id: 1, state, undone }, given, paid(seen)).map(note => `${note.state}: ${note.todo}`);
    const only = (notes: string[], sentence: RegExp) => {
        assert.equal(notes.length, 1, notes.join('\n'));
        assert.match(notes[0] ?? '', sentence);
    };
    only(
        told('Pending', back(), 'unpaid'),
        /^open: Pay 10 Token back with "svc wallet send buyer 10 --reference/,
    );
    only(told('Pending', back(), 'unpaid', true), /^open: Do not pay this refund now/);
    only(told('Pending', back(), 'pending'), /^open: The transfer ab sends the coins back.*do not pay twice/);
    only(told('Settled', back(), 'unpaid'), /^done: Done: it was settled in another way/);
    const settled = back({ settled: true, wasSettled: true });
    only(
        told('Settled', settled, 'confirmed'),
        /^done: Done: the transfer ab in block 7 has sent the coins back/,
    );
    only(told('Settled', back({ wasSettled: true }), 'pending'), /^open: .*do not pay twice/);
    const again = told('Settled', { ...settled, notes: { pay: 1, undone: 2 } }, 'confirmed');
    assert.deepEqual(
        again.map(note => note.split(':')[0]),
        ['done', 'withdrawn'],
    );
});

test('the staff is told of what Vendure shows nobody', () => {
    const keys = (from: KnownState, to: KnownState | null, state: string, order = 'PaymentSettled') =>
        stateNotes(from, to, attempt(), seen(state), {
            state: order,
            refunded: false,
            paidOtherwise: false,
        }).map(note => note.key);
    assert.deepEqual(keys('Settled', 'Undone', 'pending'), ['undone-7']);
    assert.deepEqual(keys('Undone', null, 'pending'), []);
    assert.deepEqual(keys('Undone', null, 'unpaid'), ['lost']);
    assert.deepEqual(keys('Authorized', 'Settled', 'confirmed'), []);
    assert.deepEqual(keys('Authorized', 'Settled', 'confirmed', 'Cancelled'), ['order-cancelled']);
    // It was settled before, and may be refunded already.
    assert.deepEqual(keys('Undone', 'Settled', 'confirmed', 'Cancelled'), []);
    assert.deepEqual(keys('Authorized', 'Cancelled', 'unpaid'), ['never-confirmed']);
});

test('what the staff was told of a change of the state ends', () => {
    const notes = ['undone-3', 'lost', 'order-cancelled', 'transfer:a'].map(key => written(key));
    const ended = (from: KnownState, to: KnownState | null, refunded = false) =>
        stateNotes(from, to, attempt(...notes), seen('confirmed'), {
            state: 'Cancelled',
            refunded,
            paidOtherwise: false,
        }).map(note => `${note.key} ${note.state}`);
    assert.deepEqual(ended('Undone', 'Settled'), ['undone-3 withdrawn', 'lost withdrawn']);
    assert.deepEqual(ended('Settled', null), []);
    assert.deepEqual(ended('Settled', null, true), ['order-cancelled done']);
});

test('what the staff was told of a payment that is cancelled ends with the order, or with another payment', () => {
    const notes = ['undone-3', 'lost', 'never-confirmed', 'order-cancelled'].map(key => written(key));
    const ended = (state: string, paidOtherwise: boolean) =>
        stateNotes('Cancelled', null, attempt(...notes), seen('unpaid'), {
            state,
            paidOtherwise,
            refunded: false,
        }).map(note => note.state);
    // "lost" asks for the cancelling of the payment too, which is done.
    assert.deepEqual(ended('PaymentSettled', false), ['done', 'open', 'withdrawn']);
    assert.deepEqual(ended('PaymentSettled', true), ['done', 'done', 'done', 'withdrawn']);
    assert.deepEqual(ended('Cancelled', false), ['done', 'done', 'done', 'withdrawn']);
});

test('a transfer is lost only by a node that is not catching up, and until it comes back', () => {
    const order = { state: 'PaymentSettled', refunded: false, paidOtherwise: false };
    const told = (to: KnownState | null, given: Seen) =>
        stateNotes('Undone', to, attempt(written('lost')), given, order).map(note => note.todo);
    assert.deepEqual(told(null, seen('unpaid', { synced: false })), []);
    assert.deepEqual(told(null, seen('pending', { synced: false })), []);
    assert.match(
        told(null, seen('pending')).join(),
        /^This holds no longer: the node knows the transfer again/,
    );
    assert.match(told('Settled', seen('confirmed')).join(), /no longer: the transfer came back/);
});
