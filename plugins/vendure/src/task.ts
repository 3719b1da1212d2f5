import { ScheduledTask } from '@vendure/core';

import { SvcPayService } from './svc-pay.service';

/**
 * @description
 * Asks the nodes about open payments and refunds, so that an event that never comes is made good. It runs
 * if the configuration has a scheduler, such as the `DefaultSchedulerPlugin`.
 */
export const svcPayTask = new ScheduledTask({
    id: 'svc-pay-check',
    description: 'Ask the svcd nodes about payments and refunds',
    schedule: cron => cron.everyMinute(),
    timeout: '5m',
    execute: ({ injector }) => injector.get(SvcPayService).checkAll(),
});
