import { ScheduledTask } from '@vendure/core';

import { SvcPayCheck } from './svc-pay.check';
import { SvcPayService } from './svc-pay.service';

/**
 * @description
 * Reads the feeds of the shop's addresses, and asks about what they may have changed, so that an event that never comes
 * is made good. It runs if the configuration has a scheduler, such as the `DefaultSchedulerPlugin`.
 */
export const svcPayTask = new ScheduledTask({
    id: 'svc-pay-check',
    description: 'Ask the svcd nodes about payments and refunds',
    schedule: cron => cron.everyMinute(),
    timeout: '5m',
    execute: ({ injector }) => injector.get(SvcPayCheck).checkAll(),
});

/**
 * @description
 * Tries the nodes and the payment methods once a day. The page of scheduled tasks in the dashboard runs it at any time,
 * and shows its result: what is wrong, in a sentence each.
 */
export const svcPayTest = new ScheduledTask({
    id: 'svc-pay-test',
    description: 'Try nodes, tokens, callbacks, public URLs, payment methods and rates',
    schedule: cron => cron.everyDayAt(4, 0),
    timeout: '5m',
    execute: ({ injector }) => injector.get(SvcPayService).tryAll(),
});
