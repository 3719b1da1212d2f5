/** What a buyer is told of a payment: by its state, from its public metadata. */
export const SENTENCES = {
    AwaitingTransfer: ({ amount, unit, wrongAmounts }) =>
        wrongAmounts.length > 0
            ? `${wrongAmounts.join(' and ')} ${unit} arrived; the order costs ${amount} ${unit}. They pay nothing; ask for their refund.`
            : 'Waiting for your payment.',
    Authorized: ({ confirmations, requiredConfirmations }) =>
        `Thank you, your payment is on its way: ${confirmations} of ${requiredConfirmations} confirmations.`,
    Settled: () => 'Your order is paid, thank you.',
    Undone: () =>
        'The network has undone your payment. Usually it is confirmed again soon; please do not pay again.',
    Cancelled: () => 'The time to pay is over. Do not pay this amount any more; you can begin again.',
};
