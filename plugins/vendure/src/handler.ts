import { Injector, LanguageCode, PaymentMethodHandler } from '@vendure/core';

import { CODE } from './constants';
import { SvcPayService } from './svc-pay.service';

let service: SvcPayService;

const en = (value: string) => [{ languageCode: LanguageCode.en, value }];

/** The settings of a payment method, which are a form in the administration. */
export const svcPayArgs = {
    node: {
        type: 'string',
        required: true,
        label: en('Node'),
        description: en('The name of a node in the options of the plugin'),
    },
    recipient: {
        type: 'string',
        required: true,
        label: en('Recipient'),
        description: en('The address to which buyers pay'),
        // The whole address is to be seen, which is longer than the field of one line.
        ui: { component: 'textarea-form-input' },
    },
    confirmations: {
        type: 'int',
        required: true,
        defaultValue: 12,
        label: en('Confirmations'),
        description: en('How many confirmations settle a payment, from 1 to 1000'),
    },
    minutesToPay: {
        type: 'int',
        required: true,
        defaultValue: 30,
        label: en('Minutes to pay'),
        description: en('How long an amount holds, from 1 to 10080; short where the rate moves'),
    },
    currency: {
        type: 'string',
        required: true,
        defaultValue: 'EUR',
        label: en('Currency'),
        description: en('The currency of the rate; orders in another currency cannot be paid with coins'),
    },
    rate: {
        type: 'string',
        required: false,
        defaultValue: '',
        label: en('Fixed rate'),
        description: en('The price of one coin, such as 0.48; leave it empty to read the rate from a URL'),
    },
    rateUrl: {
        type: 'string',
        required: false,
        defaultValue: '',
        label: en('URL of the rate'),
        description: en('An https:// URL that answers with JSON'),
    },
    ratePath: {
        type: 'string',
        required: false,
        defaultValue: '',
        label: en('Path of the rate'),
        description: en('Where in the JSON the price of one coin is, such as data.rates.EUR'),
    },
    rateMaxAge: {
        type: 'int',
        required: true,
        defaultValue: 60,
        label: en('Greatest age of the rate'),
        description: en('In seconds; without a newer rate nothing is sold'),
    },
} as const;

/**
 * @description
 * Sells for coins: an order has an amount of coins by the rate of the moment, and waits for a transfer of it.
 *
 * It has no `createRefund` on purpose: a refund that Vendure gets no answer for stays `Pending`, and
 * {@link SvcPayService} settles it when the payment back is confirmed.
 */
export const svcPayHandler = new PaymentMethodHandler({
    code: CODE,
    description: en('Coins of a svcd node'),
    args: { ...svcPayArgs },
    init(injector: Injector) {
        service = injector.get(SvcPayService);
    },
    createPayment: (ctx, order, amount, args) => service.begin(ctx, order, amount, args),
    settlePayment: (_ctx, _order, payment) => service.settle(payment),
});
