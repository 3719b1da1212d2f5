import { PluginCommonModule, Type, VendurePlugin } from '@vendure/core';
import { raw, RequestHandler } from 'express';
import { parse } from 'graphql';

import { BODY_LIMIT, ROUTE, SVC_PAY_NOTE, SVC_PAY_OPTIONS } from './constants';
import { svcPayHandler } from './handler';
import { PLACE_FIELDS, Places } from './places';
import { svcPayFulfillmentProcess, svcPayOrderProcess, svcPayPaymentProcess } from './processes';
import { SvcPayCheck } from './svc-pay.check';
import { SvcPayController } from './svc-pay.controller';
import { SvcPayService } from './svc-pay.service';
import { svcPayTask, svcPayTest } from './task';
import { SvcPayPluginOptions } from './types';

const read = raw({ type: () => true, limit: BODY_LIMIT });

/** The bytes of a body; what is too long, or no body, is refused without a word in the log. */
const rawBody: RequestHandler = (request, response, next) => {
    read(request, response, (error?: { status?: number }) => {
        if (error === undefined) next();
        else response.status(error.status ?? 400).end();
    });
};

/**
 * @description
 * Sells for coins of a svcd node.
 *
 * @example
 * ```ts
 * plugins: [
 *   DefaultSchedulerPlugin.init(),
 *   SvcPayPlugin.init({
 *     serverUrl: 'https://shop.example',
 *     nodes: {
 *       main: {
 *         url: 'http://127.0.0.1:8645',
 *         token: process.env.SVC_TOKEN,
 *         signingSecret: process.env.SVC_SIGNING_SECRET,
 *         publicUrl: 'https://node.example',
 *       },
 *     },
 *   }),
 * ],
 * ```
 */
@VendurePlugin({
    imports: [PluginCommonModule],
    controllers: [SvcPayController],
    providers: [
        SvcPayService,
        SvcPayCheck,
        Places,
        { provide: SVC_PAY_OPTIONS, useFactory: () => SvcPayPlugin.options },
    ],
    configuration: config => {
        const { paymentOptions, orderOptions, shippingOptions, schedulerOptions, apiOptions } = config;
        paymentOptions.paymentMethodHandlers.push(svcPayHandler);
        paymentOptions.process = [...(paymentOptions.process ?? []), svcPayPaymentProcess];
        orderOptions.process = [...(orderOptions.process ?? []), svcPayOrderProcess];
        shippingOptions.process = [...(shippingOptions.process ?? []), svcPayFulfillmentProcess];
        schedulerOptions.tasks = [...(schedulerOptions.tasks ?? []), svcPayTask, svcPayTest];
        config.settingsStoreFields = { ...config.settingsStoreFields, ...PLACE_FIELDS };
        // The signature is of the bytes of the body, so that nothing may parse them before.
        apiOptions.middleware.push({
            route: `/${ROUTE}`,
            handler: rawBody,
            beforeListen: true,
        });
        return config;
    },
    adminApiExtensions: { schema: parse(`extend enum HistoryEntryType { ${SVC_PAY_NOTE} }`) },
    // From lib/src, where this file is compiled to.
    dashboard: '../../dashboard/index.tsx',
    compatibility: '^3.7.0',
})
export class SvcPayPlugin {
    private static options: SvcPayPluginOptions;

    static init(options: SvcPayPluginOptions): Type<SvcPayPlugin> {
        this.options = options;
        return SvcPayPlugin;
    }
}
